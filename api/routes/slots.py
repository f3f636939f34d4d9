"""Slots: who has one at any seq, and who had it."""

from typing import Annotated

from fastapi import APIRouter, Path, Request
from fastapi.responses import Response

from kvledger.api.answers.slot import slot_of, tenure_out
from kvledger.api.library import OpenedJournal
from kvledger.api.problems import invalid, nothing_recorded, unknown
from kvledger.api.routes.dependencies import KEPT, LIMIT, OF_A_JOURNAL, AtSeq, CursorParam, Limit, Opened
from kvledger.api.routes.lists import Place, SeqParam, missing_before, page_of
from kvledger.api.routes.states import state_answer
from kvledger.api.schemas.common import SEQ_MAX, Page, PoolName
from kvledger.api.schemas.events import TenureOut
from kvledger.api.schemas.pools import SlotOut
from kvledger.journal.lookups.tenures import page_history

router = APIRouter(prefix="/v1/journals/{journal}/slots", tags=["state"], responses=OF_A_JOURNAL)

SEARCHED_SEQS = 100_000
SEARCHED_SEQS_MAX = 250_000
"""Seqs that one answer looks at: no index knows pages, and a hundred thousand events take about a second."""

SlotNumber = Annotated[int, Path(ge=0, le=SEQ_MAX, examples=[64])]


@router.get("/{pool}/{slot}", response_model=SlotOut, responses=KEPT)
def slot(request: Request, opened: Opened, pool: PoolName, slot: SlotNumber, at: AtSeq = None) -> Response:
    """Who has one slot of a pool, which token stands in it, and which leases reach it."""
    return state_answer(request, opened, at, lambda standing: slot_of(standing, pool, slot))


@router.get("/{pool}/{slot}/history")
def history(
    opened: Opened,
    pool: PoolName,
    slot: SlotNumber,
    first_seq: SeqParam = None,
    last_seq: SeqParam = None,
    cursor: CursorParam = None,
    limit: Limit = LIMIT,
) -> Page[TenureOut]:
    """Who had the page of one slot, in order, as far as seqs [first_seq, last_seq] tell.

    Without `last_seq` to the newest event, without `first_seq` from 100,000 seqs before that. What began
    before is told as found in a full state ("checkpoint").
    """
    place = Place.of(f"slot-{pool}", cursor, "asc")
    page, offset = divmod(slot, _page_size(opened, pool, slot))
    end = opened.reader.head().seq
    last = end if last_seq is None else min(last_seq, end)
    first = max(1, last - SEARCHED_SEQS) if first_seq is None else max(1, first_seq)
    if place.after is not None:
        first = max(first, place.after + 1)
    if last - first > SEARCHED_SEQS_MAX:
        raise invalid(
            f"seqs {first} to {last} are more than are looked through at once: ask for {SEARCHED_SEQS_MAX}"
        )
    return page_of(
        place,
        page_history(
            opened.reader,
            pool,
            page,
            first_seq=first,
            last_seq=None if last == end else last,
            limit=limit + 1,
            after_seq=place.after,
        ),
        limit=limit,
        number=lambda tenure: tenure.since,
        tell=lambda tenure: tenure_out(tenure, offset=offset, page_size=_page_size(opened, pool, slot)),
        not_here_before=lambda: missing_before(opened, first_seq=first),
    )


def _page_size(opened: OpenedJournal, pool: PoolName, slot: int) -> int:
    """The journal's page size. Raises a refusal where the pool has no such slot."""
    config = opened.info.config
    if config is None:
        raise nothing_recorded()
    page_size = int(config["page_size"])
    tokens = int(config[f"{pool}_tokens"])
    if not page_size <= slot < page_size + tokens:
        last = page_size + tokens - 1
        raise unknown("slot", detail=f"the {pool} pool has slots {page_size} to {last}, not {slot}")
    return page_size
