"""What `audit --chain` says: a document for machines and the same as a page to read."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from kvledger.core.errors import JournalError
from kvledger.journal import ChainBreak, ChainHead
from kvledger.journal.chain_check import ChainCheck, Signature

BREAKS_KEPT = 20
"""Breaks that a report names; the rest is counted."""


class ChainReport(BaseModel):
    """What a verification of the chain found. `head` is the last hash, in hexadecimal digits.

    `first_transaction` is above 1, and `start_seq` the seq of the checkpoint before it, where earlier ones
    are not there. `proved`: what is here is known to be what was recorded. `tail` says whether the end is
    known to be there; `notes` what else has to be known.
    """

    model_config = ConfigDict(frozen=True)

    verdict: Literal["pass", "fail", "unverified"]
    journal: int
    epoch: str
    first_transaction: int
    start_seq: int
    transactions: int
    events: int
    events_dropped: int
    checkpoints: int
    last_seq: int
    head: str
    signature: Signature
    anchored: bool
    proved: bool
    tail: str
    notes: list[str]
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
            f"  {self.checkpoints:,} full states (stored checkpoints)",
            f"  head {self.head} at seq {self.last_seq:,}",
            f"  {self.tail}",
        ]
        lines += [f"  {note}" for note in self.notes]
        if self.signature != "none":
            lines.append(f"  the anchor's signature: {self.signature.replace('_', ' ')}")
        return "\n".join(lines) + "\n"


def report_of(check: ChainCheck, journal: int) -> ChainReport:
    """Take all breaks of a check and write the report. Cost: O(bytes stored).

    Raises what the verification raises; JournalError too for a journal without anything in it, where nothing
    is wrong because nothing was looked at.
    """
    found = list(check)
    tally = check.tally
    if not found and not tally.transactions and tally.first_number == 1:
        raise JournalError(
            f"journal {journal} holds no transaction, so there is nothing to verify; give another one with "
            f"--journal, or the exported files with --exported"
        )
    head = tally.head or ChainHead("", 0, 0, b"")
    begins = check.beginning()
    return ChainReport(
        verdict=check.verdict,
        journal=journal,
        epoch=head.epoch,
        first_transaction=tally.first_number,
        start_seq=tally.start_seq,
        transactions=tally.transactions,
        events=tally.events,
        events_dropped=tally.events_dropped,
        checkpoints=tally.checkpoints,
        last_seq=head.seq,
        head=head.hash.hex(),
        signature="none" if check.anchor is None else check.anchor.signature,
        anchored=tally.anchored,
        proved=tally.proved,
        tail=check.tail,
        notes=[*([] if begins is None else [begins]), *check.notes()],
        breaks=found[:BREAKS_KEPT],
        breaks_total=len(found),
    )


def _line(found: ChainBreak) -> str:
    where: list[str] = [found.table]
    if found.number is not None:
        where.append(f"transaction {found.number}")
    if found.seq is not None:
        where.append(f"seq {found.seq}")
    return f"[{found.invariant}] {', '.join(where)}: {found.sentence}"
