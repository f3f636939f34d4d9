"""Recording with the writer in a process of its own: `Journal.record_apart`."""

from kvledger.journal.apart.recorder import ApartRecorder

__all__ = ["ApartRecorder"]
