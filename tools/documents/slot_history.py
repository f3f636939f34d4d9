"""Documents of the hands that a slot went through. Look-ups tell of pages; these of one slot of the page."""

from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict

from kvledger.journal import LookUpSource
from kvledger.journal.lookups.beginning import Unseen
from kvledger.journal.lookups.tenures import Side, Tenure
from kvledger.tools.documents.lookups import Page, cut_at, unseen_document, utc


class TenureDocument(BaseModel):
    """A slot in one pair of hands (journal.lookups.tenures.Tenure, which tells of its page); times are UTC.

    `position` is that of the token in the slot, `beside` the slot of the other pool that stood beside it.
    """

    model_config = ConfigDict(frozen=True)

    since: int
    since_time: str | None
    until: int | None
    until_time: str | None
    holder: str
    request: str | None
    node: int | None
    position: int | None
    beside: int | None
    began: str
    ended: str | None
    cause: str | None

    def line(self, *, last_seq: int | None = None) -> str:
        """The tenure as one line of text, as far as it was looked at: up to `last_seq`, or to the end."""
        who = {"request": f"request {self.request}", "node": f"node {self.node}"}.get(
            self.holder, "the caller"
        )
        open_end = "now" if last_seq is None else f">{last_seq}"
        until = open_end if self.until is None else f"{self.until}"
        where = "" if self.position is None else f", token {self.position}"
        beside = "" if self.beside is None else f", beside slot {self.beside}"
        end = "" if self.ended is None else f"; ended by {self.ended}"
        why = "" if self.cause is None else f", cause {self.cause}"
        return f"{self.since:>9} to {until:<9}  {who}{where}{beside}; began with {self.began}{end}{why}"


class SlotHistory(Page):
    """Who held a slot, in order; `next` is since when the last one did."""

    pool: str
    slot: int
    page: int
    tenures: list[TenureDocument]


def slot_history(
    source: LookUpSource,
    tenures: Iterable[Tenure],
    *,
    side: Side,
    slot: int,
    page_size: int,
    limit: int,
    unseen: Unseen | None = None,
) -> SlotHistory:
    """At most `limit` of the tenures of a slot's page, which must be one more if there are more."""
    page, offset = divmod(slot, page_size)
    taken, following = cut_at(tenures, limit)
    return SlotHistory(
        journal=source.info.id,
        pool=side,
        slot=slot,
        page=page,
        tenures=[tenure_document(one, offset=offset, page_size=page_size) for one in taken],
        next=int(taken[-1].since) if following else None,
        unseen=unseen_document(unseen),
    )


def tenure_document(tenure: Tenure, *, offset: int, page_size: int) -> TenureDocument:
    """The document of one tenure of a page, told of the slot at `offset` in it."""
    return TenureDocument(
        since=tenure.since,
        since_time=None if tenure.since_us is None else utc(tenure.since_us),
        until=tenure.until,
        until_time=None if tenure.until_us is None else utc(tenure.until_us),
        holder=tenure.holder,
        request=tenure.request,
        node=tenure.node,
        position=None if tenure.position is None else tenure.position + offset,
        beside=None if tenure.beside is None else tenure.beside * page_size + offset,
        began=tenure.began,
        ended=tenure.ended,
        cause=tenure.cause,
    )
