"""Reads a journal once, event by event, with every check at its side, and writes the verdict.

An event that does not fit the state is a finding and is left out; one that fits is applied as written,
right or wrong, so that reading goes on with what the cache believed. Memory follows the live state, not
the length of the journal.
"""

from collections.abc import Callable, Iterable

from kvledger.core.events import Event, EventsDropped, LockReleased, RolledBack, SwaLockReleased
from kvledger.core.ids import Seq, TxnId
from kvledger.journal.audit.check import Check, Context, Hook
from kvledger.journal.audit.checkpoints import Checkpoints
from kvledger.journal.audit.credit import Credit
from kvledger.journal.audit.findings import ChainFinding, Findings
from kvledger.journal.audit.invariants import INVARIANTS
from kvledger.journal.audit.leases import LeaseBalance
from kvledger.journal.audit.locks import Locks
from kvledger.journal.audit.matching import Matching
from kvledger.journal.audit.pages import PageMoves
from kvledger.journal.audit.recount import Recount
from kvledger.journal.audit.rollbacks import Rollbacks
from kvledger.journal.audit.rows import RowSafety
from kvledger.journal.audit.verdict import Counts, InvariantReport, Status, Verdict
from kvledger.journal.effects import EFFECTS, end_transaction
from kvledger.journal.records import StoredTransaction
from kvledger.journal.replay import open_state, refusal
from kvledger.journal.state import State
from kvledger.journal.structure import STRUCTURE, ReplayError

PROGRESS_EVENTS = 4096
"""Events between two calls of `progress`: often enough for a bar, seldom enough to cost nothing."""


def audit(
    transactions: Iterable[StoredTransaction],
    *,
    chain: Iterable[ChainFinding] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Verdict:
    """Check every invariant over a whole journal.

    `chain`: what a verification of the hash chain found (nothing: it links); None: not checked.
    `progress` is called with the number of events read so far. Raises `ReplayError` where there is nothing
    to audit: no event, or a first one that is not `cache_opened`. Cost is linear in the events and the
    pages they name; memory follows the live state.
    """
    auditor = _Auditor()
    told = 0
    for transaction in transactions:
        auditor.read(transaction)
        if progress is not None and auditor.events - told >= PROGRESS_EVENTS:
            told = auditor.events
            progress(told)
        if auditor.stopped:
            break
    verdict = auditor.verdict(chain)
    if progress is not None:
        progress(auditor.events)
    return verdict


class _Plan:
    """All that is done for one type of event."""

    __slots__ = ("after", "before", "effect", "structure")

    def __init__(self, kind: type, checks: list[Check]) -> None:
        self.structure = STRUCTURE[kind]
        self.effect = EFFECTS[kind]
        self.before: tuple[Hook, ...] = tuple(c.before[kind] for c in checks if kind in c.before)
        self.after: tuple[Hook, ...] = tuple(c.after[kind] for c in checks if kind in c.after)


class _Auditor:
    def __init__(self) -> None:
        self.events = 0
        self.stopped = False
        self._undone = 0
        self._rolled_back = 0
        self._transactions = 0
        self._seq = Seq(0)
        self._transaction = TxnId(0)
        self._findings = Findings()
        self._state: State | None = None

    def read(self, transaction: StoredTransaction) -> None:
        findings = self._findings
        findings.transaction = transaction.number
        findings.seq = transaction.first_seq
        self._check_numbers(transaction)
        state = self._state
        for ordinal, stored in enumerate(transaction.events):
            findings.seq = stored.seq
            if stored.seq != self._seq + 1:
                findings.add("sequence", f"seq {stored.seq} follows seq {self._seq}")
            self._seq = stored.seq
            event = stored.event
            if state is None:
                state = self._open(event)
                continue
            if stored.undone:
                self._undone += 1
                self._rollbacks.saw_undone(event, seq=stored.seq)
                if isinstance(event, RolledBack):
                    self._rollbacks.saw_rollback(event, ordinal=ordinal)
                continue
            plan = self._plans.get(type(event))
            if plan is None:
                self._cannot_fold(event)
                continue
            try:
                subject = plan.structure(state, event)
            except ReplayError as error:
                self._does_not_fit(event, error)
                continue
            for hook in plan.before:
                hook(event, subject)
            plan.effect(state, event, subject)
            for hook in plan.after:
                hook(event, subject)
            if type(event) is RolledBack:
                self._rollbacks.saw_rollback(event, ordinal=ordinal)
        self.events += len(transaction.events)
        if state is not None:
            for end in self._ends:
                end(transaction)
            end_transaction(state)

    def _check_numbers(self, transaction: StoredTransaction) -> None:
        self._transactions += 1
        self._rolled_back += transaction.rolled_back
        if transaction.number != self._transaction + 1:
            self._findings.add(
                "sequence", f"transaction {transaction.number} follows transaction {self._transaction}"
            )
        self._transaction = transaction.number
        if transaction.first_seq != self._seq + 1:
            self._findings.add(
                "sequence", f"the transaction begins at seq {transaction.first_seq} after seq {self._seq}"
            )
            self._seq = Seq(transaction.first_seq - 1)

    def _open(self, event: Event) -> State:
        self._state = state = open_state(event)
        context = Context(state, self._findings)
        self._counts = context.counts
        self._rollbacks = Rollbacks(context)
        self._locks = Locks(context)
        self._checks: list[Check] = [
            self._locks,
            LeaseBalance(context),
            PageMoves(context, locks=self._locks, rollbacks=self._rollbacks),
            Matching(context),
            RowSafety(context),
            Credit(context),
            Checkpoints(context),
            Recount(context),
            self._rollbacks,
        ]
        self._ends = [
            check.end_transaction
            for check in self._checks
            if type(check).end_transaction is not Check.end_transaction
        ]
        self._plans = {kind: _Plan(kind, self._checks) for kind in STRUCTURE}
        return state

    def _cannot_fold(self, event: Event) -> None:
        problem = refusal(event).problem
        if isinstance(event, EventsDropped):
            # What follows cannot be checked against a state that is not known.
            self._findings.add("sequence", f"{problem}, and nothing after them was verified")
            self.stopped = True
        else:
            self._findings.add("well-formed", problem)

    def _does_not_fit(self, event: Event, error: ReplayError) -> None:
        birth = self._rollbacks.birth_of(error)
        if birth is not None:
            invariant, problem = "rollback-neutral", f"{birth[0]} was born in an undone event, seq {birth[1]}"
        elif error.lease is not None and isinstance(event, LockReleased | SwaLockReleased):
            invariant, problem = "lock-order", error.problem
        else:
            invariant, problem = "well-formed", f"{event.kind} does not fit: {error.problem}"
        request = error.request or getattr(event, "request_id", None) or getattr(event, "owner", None)
        node = error.node if error.node is not None else getattr(event, "node", None)
        self._findings.add(invariant, problem, request=request, node=node)

    def verdict(self, chain: Iterable[ChainFinding] | None) -> Verdict:
        state = self._state
        if state is None:
            raise ReplayError("the journal holds no event: there is nothing to audit")
        if not self.stopped:
            for check in self._checks:
                check.end()
        findings = self._findings
        if chain is not None:
            findings.take_over(chain)
        reports = tuple(
            InvariantReport(
                id=invariant.id,
                sentence=invariant.sentence,
                status=_status(invariant.id, findings, chain_checked=chain is not None),
                findings=findings.totals[invariant.id],
            )
            for invariant in INVARIANTS
        )
        counts = Counts(
            events=self.events,
            undone_events=self._undone,
            transactions=self._transactions,
            transactions_rolled_back=self._rolled_back,
            mixed_nodes_at_end=sum(node.is_mixed for node in state.nodes.values()),
            **self._counts,
        )
        return Verdict(
            verdict="fail" if findings.totals.total() else "pass",
            counts=counts,
            invariants=reports,
            findings=findings.kept([invariant.id for invariant in INVARIANTS]),
            locks_cut=tuple(self._locks.cut),
        )


def _status(invariant: str, findings: Findings, *, chain_checked: bool) -> Status:
    if findings.totals[invariant]:
        return "failed"
    if invariant == "chain" and not chain_checked:
        return "not_checked"
    return "verified"
