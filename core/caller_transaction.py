"""The caller's own transaction: what `cache.transaction(op)` gives.

It checks what a caller may ask of the ledger, and leaves everything else to it.
"""

from types import TracebackType
from typing import Self

from kvledger.core.errors import InvalidArgument, TransactionError
from kvledger.core.events import RollbackCause
from kvledger.core.ids import RequestId
from kvledger.core.transaction import Ledger, Savepoint, Scope


class Transaction:
    """What `cache.transaction(op)` gives: savepoints and rollback of the caller's own transaction.

    Leaving the block commits, an exception undoes it. Nested blocks are savepoints of the outer one.
    """

    __slots__ = ("_ledger", "_scope", "_state")

    def __init__(self, ledger: Ledger, op: str, request_id: RequestId | None) -> None:
        self._ledger = ledger
        self._scope = Scope(ledger, op, request_id)
        self._state = "new"

    def __enter__(self) -> Self:
        if self._state != "new":
            raise TransactionError("a transaction object is used once")
        self._scope.__enter__()
        self._state = "open"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ledger.check_writer()
        self._state = "ended"
        self._scope.__exit__(kind, error, trace)

    def savepoint(self) -> Savepoint:
        """A place to come back to. TransactionError when the transaction is not the open one."""
        self._check_open()
        return self._ledger.mark()

    def rollback(self, to: Savepoint | None = None, reason: str = "") -> None:
        """Undo everything since `to`, or since the start; the transaction stays open. O(what changed).

        Raises TransactionError for a savepoint of another transaction or one rolled back past.
        """
        self._check_open()
        target: object = self._scope.start if to is None else to
        if type(reason) is not str:
            raise InvalidArgument(f"the reason of a rollback must be a string, not {reason!r}")
        if not isinstance(target, Savepoint) or not self._ledger.is_current(target):
            raise TransactionError("that is no savepoint of this transaction, or was rolled back past")
        if target.serial < self._scope.start.serial:
            raise TransactionError("that savepoint was made before this transaction began")
        self._ledger.rollback(target, RollbackCause.CALLER, reason, self._scope.request_id)

    def _check_open(self) -> None:
        self._ledger.check_writer()
        if self._state != "open" or self._ledger.depth != self._scope.depth:
            raise TransactionError("the transaction is not the innermost open one")
