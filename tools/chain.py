"""The chain of a stored journal against its hashes and against an anchor: what `audit --chain` reports."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict

from kvledger.core.errors import JournalError, UnknownJournal
from kvledger.journal import ChainBreak, ChainHead, Journal
from kvledger.journal.anchor import is_signed_by, read_anchor
from kvledger.journal.audit.verdict import TAIL_KNOWN, TAIL_UNKNOWN
from kvledger.journal.database import reading_engine
from kvledger.journal.verify import ChainTally, rows_without_journal, stored_journals
from kvledger.tools.sources import OpenedSource

BREAKS_KEPT = 20
"""Breaks that a report names; the rest is counted."""

Signature = Literal["none", "valid", "invalid", "not_checked"]


@dataclass(frozen=True, slots=True)
class KeptAnchor:
    """An anchor as somebody kept it. `head` is None where its signature is not that of the key given."""

    head: ChainHead | None
    epoch: str
    signature: Signature


class ChainReport(BaseModel):
    """What a verification of the chain found. `head` is the last hash, in hexadecimal digits.

    `first_transaction` is above 1 where earlier ones were pruned. `tail` says whether the end is known to be
    there.
    """

    model_config = ConfigDict(frozen=True)

    verdict: Literal["pass", "fail"]
    journal: int
    epoch: str
    first_transaction: int
    transactions: int
    events: int
    events_dropped: int
    checkpoints: int
    last_seq: int
    head: str
    signature: Signature
    anchored: bool
    tail: str
    breaks: list[ChainBreak]
    breaks_total: int

    def render(self) -> str:
        """The report as plain text."""
        lines = [f"chain: {self.verdict}", ""]
        lines += [f"  {_line(found)}" for found in self.breaks]
        if self.breaks_total > len(self.breaks):
            lines.append(f"  and {self.breaks_total - len(self.breaks)} more")
        if self.breaks:
            lines.append("")
        first = "" if self.first_transaction == 1 else f" from transaction {self.first_transaction} on"
        dropped = "" if not self.events_dropped else f", {self.events_dropped:,} events dropped in between"
        lines += [
            f"  journal {self.journal}, epoch {self.epoch}",
            f"  {self.events:,} events of {self.transactions:,} transactions{first}{dropped}",
            f"  {self.checkpoints:,} checkpoints",
            f"  head {self.head} at seq {self.last_seq:,}",
            f"  {self.tail}",
        ]
        if self.first_transaction > 1:
            lines.append("  what came before is not here: only an audit with --exported reads all of it")
        if self.signature != "none":
            lines.append(f"  the anchor's signature: {self.signature.replace('_', ' ')}")
        return "\n".join(lines) + "\n"


def open_anchor(text: bytes, *, public_key: bytes | None) -> KeptAnchor:
    """Read an anchor and check its signature. Raises InvalidArgument if it is none, or the key is none.

    With a `public_key` an anchor without a signature is as good as a forged one.
    """
    head, signature = read_anchor(text)
    if public_key is None:
        return KeptAnchor(head, head.epoch, "none" if signature is None else "not_checked")
    if is_signed_by(head, signature, public_key=public_key):
        return KeptAnchor(head, head.epoch, "valid")
    return KeptAnchor(None, head.epoch, "invalid")


def journal_of(store: Journal, journal: int | None, anchor: KeptAnchor | None) -> int:
    """The journal to look at: the one named, the one of the anchor's epoch, or else the latest.

    Where rows are left of a journal that is gone, and there is no other, it is that one.
    """
    if journal is not None:
        return journal
    journals = journals_in(store)
    if anchor is not None:
        for number, epoch in journals:
            if epoch == anchor.epoch.encode():
                return number
    if journals:
        return journals[-1][0]
    lost = _lost_rows(store)
    if lost is None:
        raise UnknownJournal("the store holds no journal yet")
    return lost[0]


def journals_in(store: Journal) -> tuple[tuple[int, bytes], ...]:
    """Number and epoch of every journal, oldest first, also of one whose row cannot be read."""
    engine = reading_engine(store.url)
    try:
        return stored_journals(engine)
    finally:
        engine.dispose()


def _lost_rows(store: Journal) -> tuple[int, ChainBreak] | None:
    engine = reading_engine(store.url)
    try:
        return rows_without_journal(engine)
    finally:
        engine.dispose()


def breaks_of(
    store: Journal, journal: int, anchor: KeptAnchor | None, *, tally: ChainTally | None = None
) -> Iterator[ChainBreak]:
    """Every break of one journal's chain, that of a forged anchor first.

    Raises UnknownJournal where there is no such journal, unless rows are left of one that is gone.
    """
    if anchor is not None and anchor.signature == "invalid":
        yield _forged()
    try:
        found = store.verify(journal, anchor=None if anchor is None else anchor.head, tally=tally)
    except UnknownJournal:
        lost = _lost_rows(store)
        if lost is None:
            raise
        yield lost[1]
        return
    yield from found


def breaks_in_files(
    opened: OpenedSource, anchor: KeptAnchor | None, *, tally: ChainTally | None = None
) -> Iterator[ChainBreak]:
    """Every break of a journal that is kept in files, or in files and a database.

    Its links are verified, so the anchor has only to be found among them.
    """
    yield from opened.breaks()
    if anchor is None:
        return
    if anchor.head is None:
        yield _forged()
        return
    head, source = anchor.head, opened.source
    if head.epoch != source.info.epoch:
        sentence = f"the anchor is of epoch {head.epoch}, the journal of {source.info.epoch}: it was replaced"
        yield ChainBreak("chain", "journals", None, None, sentence)
        return
    end = source.head()
    if head.number > end.number:
        sentence = (
            f"the journal ends with transaction {end.number}; the anchor names transaction {head.number}, "
            f"seq {head.seq}: the tail was cut"
        )
        yield ChainBreak("chain", "transactions", end.number + 1, end.seq + 1, sentence)
        return
    found = next(source.transactions(max(1, head.number)), None)
    if head.number > 0 and (found is None or found.number != head.number):
        sentence = f"transaction {head.number}, which the anchor names, is not among what is kept here"
        yield ChainBreak("chain", "transactions", head.number, head.seq, sentence)
    elif found is not None and head.number > 0 and (found.last_seq, found.hash) != (head.seq, head.hash):
        sentence = f"transaction {head.number} has another hash or last seq than the anchor"
        yield ChainBreak("chain", "transactions", head.number, head.seq, sentence)
    elif tally is not None:
        tally.anchored = True


def check_chain(store: Journal, journal: int | None, anchor: KeptAnchor | None) -> ChainReport:
    """Verify one journal's chain. Cost: O(bytes stored).

    Errors as `Journal.verify`; JournalError too for a journal without any transaction, where nothing is wrong
    because nothing was looked at.
    """
    number = journal_of(store, journal, anchor)
    tally = ChainTally()
    found = list(breaks_of(store, number, anchor, tally=tally))
    if not found and not tally.transactions:
        raise JournalError(
            f"journal {number} holds no transaction, so there is nothing to verify; give another one with "
            f"--journal, or the exported files with --exported"
        )
    head = tally.head or ChainHead("", 0, 0, b"")
    return ChainReport(
        verdict="fail" if found else "pass",
        journal=number,
        epoch=head.epoch,
        first_transaction=tally.first_number,
        transactions=tally.transactions,
        events=tally.events,
        events_dropped=tally.events_dropped,
        checkpoints=tally.checkpoints,
        last_seq=head.seq,
        head=head.hash.hex(),
        signature="none" if anchor is None else anchor.signature,
        anchored=tally.anchored,
        tail=TAIL_KNOWN if tally.anchored and not found else TAIL_UNKNOWN,
        breaks=found[:BREAKS_KEPT],
        breaks_total=len(found),
    )


def _forged() -> ChainBreak:
    sentence = "the anchor was not signed with this key: it is forged, or of somebody else"
    return ChainBreak("chain", "anchor", None, None, sentence)


def _line(found: ChainBreak) -> str:
    where: list[str] = [found.table]
    if found.number is not None:
        where.append(f"transaction {found.number}")
    if found.seq is not None:
        where.append(f"seq {found.seq}")
    return f"[{found.invariant}] {', '.join(where)}: {found.sentence}"
