"""A verification of one journal's chain, held against an anchor: what it proves, and what it cannot.

The walk over the rows finds breaks and counts (verify.py, or the export's files); here they become a verdict,
with what is known of the journal's end and beginning. Nothing is read here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from kvledger.journal.anchor import is_signed_by, read_anchor
from kvledger.journal.audit.verdict import TAIL_EARLIER, TAIL_KNOWN, TAIL_REFUTED, TAIL_UNKNOWN
from kvledger.journal.chain import Anchor
from kvledger.journal.verify import ChainTally
from kvledger.journal.walk import ChainBreak

Signature = Literal["none", "valid", "invalid", "not_checked"]


@dataclass(frozen=True, slots=True)
class KeptAnchor:
    """An anchor as somebody kept it. `head` is None where its signature is not that of the key given."""

    head: Anchor | None
    epoch: str
    signature: Signature


class ChainCheck:
    """A verification of one journal's chain: an iterator of its breaks, to be taken once and to the end.

    What it comes to is known afterwards. A forged anchor is the first break.
    """

    def __init__(
        self,
        breaks: Iterator[ChainBreak],
        tally: ChainTally,
        *,
        anchor: KeptAnchor | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        self.tally = tally
        self.anchor = anchor
        self._stream = self._all(breaks)
        self._held: list[ChainBreak] = []
        self._notes = notes
        self._found = 0

    def __iter__(self) -> Iterator[ChainBreak]:
        yield from self._held
        self._held.clear()
        yield from self._stream

    def is_broken(self) -> bool:
        """Whether there is any break, which is then taken like all others. Reads up to the first."""
        if not self._found:
            self._held = [found for found in (next(self._stream, None),) if found is not None]
        return self._found > 0

    def _all(self, breaks: Iterator[ChainBreak]) -> Iterator[ChainBreak]:
        if self.anchor is not None and self.anchor.head is None:
            self._found += 1
            sentence = "the anchor was not signed with this key: it is forged, or of somebody else"
            yield ChainBreak("chain", "anchor", None, None, sentence)
        for found in breaks:
            self._found += 1
            yield found

    @property
    def verdict(self) -> Literal["pass", "fail", "unverified"]:
        """Fail where anything is wrong; unverified where what is here is not known to be what was recorded,
        or not held against the anchor that was given."""
        if self._found:
            return "fail"
        return "pass" if self.tally.proved and not self._anchor_is_earlier else "unverified"

    @property
    def tail(self) -> str:
        """Whether the end is known to be there."""
        if self.anchor is None:
            return TAIL_UNKNOWN
        if self.tally.anchored and not self._found:
            return TAIL_KNOWN
        return TAIL_EARLIER if self._anchor_is_earlier else TAIL_REFUTED

    def notes(self) -> tuple[str, ...]:
        """What a reader has to know besides: of the files, and of an anchor that tells nothing here."""
        if not self._anchor_is_earlier or self.anchor is None or self.anchor.head is None:
            return tuple(self._notes)
        number, seq = self.anchor.head.number, self.anchor.head.seq
        return (
            *self._notes,
            f"transaction {number}, seq {seq}, which the anchor names, is not here: give the exported files "
            "that hold it with --exported, or an anchor that was taken later",
        )

    def beginning(self) -> str | None:
        """What is known of a journal that begins later than with its first transaction; None for others."""
        tally = self.tally
        if tally.first_number == 1:
            return None
        if tally.proved:
            return (
                f"proved from seq {tally.start_seq + 1} on: the anchor covers the checkpoint at seq "
                f"{tally.start_seq}, at which this begins"
            )
        named = tally.named_by
        return (
            f"events 1 to {tally.start_seq} are not here, and whether they were pruned or cut off cannot be "
            "known from what is: give the exported files with --exported"
            + ("" if named is None else f", or an anchor of transaction {named} or a later one")
        )

    @property
    def _anchor_is_earlier(self) -> bool:
        head = None if self.anchor is None else self.anchor.head
        return head is not None and not self.tally.anchored and head.number < self.tally.first_number - 1


def open_anchor(text: bytes, *, public_key: bytes | None) -> KeptAnchor:
    """Read an anchor and check its signature, as `kept_anchor`. Raises InvalidArgument if it is none too."""
    head, signature = read_anchor(text)
    return kept_anchor(head, signature, public_key=public_key)


def kept_anchor(head: Anchor, signature: bytes | None, *, public_key: bytes | None) -> KeptAnchor:
    """An anchor whose signature was checked where there is a `public_key`, the PEM text of an Ed25519 key.

    With a key an anchor without a signature is as good as a forged one. Raises InvalidArgument where the key
    is none, JournalError where `cryptography` is missing.
    """
    if public_key is None:
        return KeptAnchor(head, head.epoch, "none" if signature is None else "not_checked")
    if is_signed_by(head, signature, public_key=public_key):
        return KeptAnchor(head, head.epoch, "valid")
    return KeptAnchor(None, head.epoch, "invalid")
