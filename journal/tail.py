"""What a crash took: the end of a journal on disk against the last seq that its scheduler knew of.

A recorder writes nothing for this. A scheduler that wants the answer keeps `recorder.last_seq` somewhere that
outlives it, after each step; the next start hands it to `JournalReader.tail`.
"""

from dataclasses import dataclass

from kvledger.core.ids import Seq


@dataclass(frozen=True, slots=True)
class Tail:
    """`durable_seq`: the last seq on disk. `last_seq`: the last one that was accepted. 0: none."""

    durable_seq: Seq
    last_seq: Seq

    @property
    def missing_events(self) -> int:
        """How many accepted events are not on disk; 0 also where the disk has more than was known of."""
        return max(0, self.last_seq - self.durable_seq)

    @property
    def missing(self) -> tuple[Seq, Seq] | None:
        """The seqs that are not there as (first, last); None when nothing is missing."""
        return (Seq(self.durable_seq + 1), self.last_seq) if self.missing_events else None
