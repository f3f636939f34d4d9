"""Whether the store under a writer's connection is still the one it was, and still all there.

A connection to a file goes on writing when the file was removed, replaced, or cut short under it: what it
holds in memory it does not read again. What it says is stored, nobody could then open or read. So a writer
looks at the file and its log each time it commits. This module keeps what was seen there last and compares;
what there is to see is for the backend to say.
"""

from sqlalchemy.engine import URL

from kvledger.core.errors import JournalError, StoreUnavailable
from kvledger.journal.backend import FileSeen
from kvledger.journal.database import backend_of, store_name


class SameStore:
    """What a writer has seen of its store. Belongs to the writer's thread, but for `is_whole`."""

    def __init__(self, url: URL) -> None:
        self._url = url
        self._backend = backend_of(url)
        self._file = self._backend.file(url)
        self._log: FileSeen | None = None
        self._knows_log = False
        self._was_cut = False

    def check(self) -> None:
        """Raise StoreUnavailable when another store stands where this one did, or none, or only part of it.

        A file is shorter than it was also after somebody compacted it: then all of it is read, once.
        """
        file, log = self._backend.file(self._url), self._backend.log(self._url)
        if not _same(file, self._file):
            raise StoreUnavailable(f"the file {self._name} was removed or replaced")
        if self._knows_log and not _same(log, self._log):
            raise StoreUnavailable(f"the write-ahead log of {self._name} was removed or replaced")
        if _shorter(file, self._file) or _shorter(log, self._log):
            self._was_cut = not self.is_whole()
        if self._was_cut:
            raise StoreUnavailable(f"the file {self._name} or its log was cut short")
        self._file, self._log, self._knows_log = file, log, True

    def forget_log(self) -> None:
        """The connection is gone: another one may begin another log."""
        self._log, self._knows_log = None, False

    def find_again(self) -> FileSeen | None:
        """What stands there after a failure, for `settle_on` once it is known to be this writer's.

        Raises StoreUnavailable where nothing does, JournalError where a part of it was lost: for good, since
        SQLite makes a file that was cut as long again as it was, with other pages.
        """
        file = self._backend.file(self._url)
        if self._was_cut or (_shorter(file, self._file) and not self.is_whole()):
            raise JournalError(f"{self._name} was cut short: rows that were stored may be lost")
        return file

    def settle_on(self, file: FileSeen | None) -> None:
        """`file` is the writer's store from now on."""
        self._file = file

    def is_whole(self) -> bool:
        """Whether everything can be read. Cost: O(bytes stored). Safe from any thread."""
        return self._backend.is_whole(self._url)

    @property
    def _name(self) -> str:
        return store_name(self._url)


def _same(now: FileSeen | None, before: FileSeen | None) -> bool:
    if now is None or before is None:
        return now is before
    return now.identity == before.identity


def _shorter(now: FileSeen | None, before: FileSeen | None) -> bool:
    return now is not None and before is not None and now.length < min(before.length, before.least_cut)
