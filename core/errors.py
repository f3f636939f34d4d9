"""Every error a caller of the cache or of its journal can meet.

    CacheError
    +-- InvalidArgument (also ValueError)   the caller's mistake: nothing was changed, mend the call
    |   +-- UnalignedLength                 a length or a run of slots that is not whole pages
    |   +-- ForeignSlots                    slots that are not the caller's, or not the tree's
    |   +-- DoubleFree                      a page named twice, freed already, or without the peer to free
    |   +-- MissingSwa                      a slot that must have an SWA peer has none
    +-- StaleLease                          a lease or request that is closed, undone or older than a reset
    +-- WrongThread                         the cache belongs to another thread
    +-- TransactionError                    not possible in (or outside) an open transaction
    +-- OutOfSlots                          expected under load: retry after something was released
    +-- KVUnreadable                        the memory could not read KV that was to be fingerprinted
    +-- InvariantViolation                  broken integrity: stop and keep the evidence
    +-- JournalError                        the journal cannot store or read: the cache stays as it was
        +-- UnknownJournal                  no such database or journal
        +-- StoreUnavailable                the database is away, locked, full or read-only: may come back
        +-- NotExported                     rows that no verified file holds are not pruned
        +-- JournalFormatError              stored rows that this version cannot read

Whatever is raised, nothing has changed, and a call that fails validation writes no event.
"""

from collections.abc import Sequence


class CacheError(Exception):
    """Base of every error raised by kvledger."""


class InvalidArgument(CacheError, ValueError):
    """An argument that no state of the cache could make valid."""


class UnalignedLength(InvalidArgument):
    """A length, or a run of slots, that is not made of whole pages."""


class ForeignSlots(InvalidArgument):
    """Slots that do not belong to the caller, or protected slots that differ from the tree's."""


class DoubleFree(InvalidArgument):
    """A page named twice in one call, freed already, or an SWA free where there is no peer."""


class MissingSwa(InvalidArgument):
    """A slot that has to have an SWA peer has none."""


class StaleLease(CacheError):
    """A lease or request that was released, closed, or born in an undone transaction."""


class WrongThread(CacheError):
    """A call from a thread that does not own the cache."""


class TransactionError(CacheError):
    """A call that the state of the open transaction does not allow."""


class OutOfSlots(CacheError):
    """Not enough pages, even after evicting all that may go. All figures are tokens.

    Attributes: `pool` ("full" or "swa"), `needed`, `free`, `evictable`.
    """

    def __init__(self, pool: str, needed: int, free: int, evictable: int) -> None:
        self.pool = pool
        self.needed = needed
        self.free = free
        self.evictable = evictable
        super().__init__(
            f"pool {pool!r} has no room: {needed} tokens needed, {free} free, {evictable} evictable; "
            f"release a request or evict, then try again"
        )

    def __reduce__(self) -> tuple[type["OutOfSlots"], tuple[str, int, int, int]]:
        return type(self), (self.pool, self.needed, self.free, self.evictable)


class KVUnreadable(CacheError):
    """KV whose checksums were asked for could not be read: its device failed, or had no room. May pass."""


class InvariantViolation(CacheError):
    """State that must never occur. `violations` holds (invariant id, sentence) pairs."""

    def __init__(self, violations: Sequence[tuple[str, str]]) -> None:
        self.violations = tuple(violations)
        super().__init__("; ".join(f"[{invariant}] {sentence}" for invariant, sentence in self.violations))

    def __reduce__(self) -> tuple[type["InvariantViolation"], tuple[tuple[tuple[str, str], ...]]]:
        return type(self), (self.violations,)


class JournalError(CacheError):
    """The journal cannot take or give what was asked."""


class UnknownJournal(JournalError):
    """No such database, or no such journal in it."""


class StoreUnavailable(JournalError):
    """The database refused or did not answer; it may take the same again later."""


class NotExported(JournalError):
    """Rows that were to be pruned and that no verified file holds: export them first."""


class JournalFormatError(JournalError):
    """Stored rows that this version cannot decode: an unknown kind or version, or a malformed payload."""
