"""Reads a journal once, event by event, with every check at its side, and writes the verdict.

An event that does not fit the state is a finding and is left out; one that fits is applied as written,
right or wrong, so that reading goes on with what the cache believed. Memory follows the live state, not
the length of the journal.

A journal whose beginning is not there is read from the checkpoint before its first transaction. Where events
were dropped, or no checkpoint stands at the beginning, the audit goes on from the next one. What was not read
is a gap: unverified, never passed, for a beginning that was pruned and one that was cut off look the same.

A row that cannot be read ends the reading. It is a finding if anything else is: the chain tells damage from
rows that only a newer version reads.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

from kvledger.core.errors import JournalError, JournalFormatError
from kvledger.core.events import CacheOpened, LockReleased, RolledBack, SwaLockReleased
from kvledger.core.ids import Seq, TxnId
from kvledger.journal.audit.check import Context
from kvledger.journal.audit.checks import all_checks
from kvledger.journal.audit.content import SETTING
from kvledger.journal.audit.findings import ChainFinding, Findings
from kvledger.journal.audit.invariants import INVARIANTS
from kvledger.journal.audit.locks import Locks
from kvledger.journal.audit.opening import check_opening
from kvledger.journal.audit.plan import Ends, plans_for
from kvledger.journal.audit.rollbacks import Rollbacks
from kvledger.journal.audit.verdict import (
    CONTENT_UNKNOWN,
    CONTENT_UNREAD,
    Counts,
    Gap,
    InvariantReport,
    LockCut,
    Status,
    Verdict,
)
from kvledger.journal.effects import end_transaction
from kvledger.journal.fits import ReplayError
from kvledger.journal.records import JournalSource, StoredCheckpoint, StoredTransaction, UnreadableRow
from kvledger.journal.replay import gap_in, open_state, refusal, restore
from kvledger.journal.snapshot import encode_state
from kvledger.journal.state import State

PROGRESS_EVENTS = 4096
"""Events between two calls of `progress`: often enough for a bar, seldom enough to cost nothing."""


def audit(
    transactions: Iterable[StoredTransaction] | JournalSource,
    *,
    chain: Iterable[ChainFinding] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Verdict:
    """Check every invariant over a whole journal.

    `transactions`: from the first on, or a source, whose checkpoints then help over what is missing. `chain`:
    what a verification of the hash chain found (nothing: it links); None: not checked. `progress` is called
    with the number of events read so far.

    Raises `ReplayError` where there is nothing to audit: no event, or a first one that is not `cache_opened`,
    and no checkpoint; JournalFormatError for a row that cannot be read; but neither where there is any
    finding, in the chain or before that row. Cost is linear in the events and the pages they name, and in the
    checkpoints' states; memory follows the live state.
    """
    auditor = _Auditor(None if isinstance(transactions, Iterable) else transactions)
    try:
        _read_all(auditor, transactions, progress)
    except (JournalFormatError, ReplayError) as error:
        auditor.stop(error)
    verdict = auditor.verdict(chain)
    if progress is not None:
        progress(auditor.events)
    return verdict


def _read_all(
    auditor: "_Auditor",
    transactions: Iterable[StoredTransaction] | JournalSource,
    progress: Callable[[int], None] | None,
) -> None:
    stream: Iterator[StoredTransaction] | None
    stream = iter(transactions) if isinstance(transactions, Iterable) else auditor.begin(transactions)
    told = 0
    while stream is not None:
        reading, stream = stream, None
        for transaction in reading:
            gap = gap_in(transaction)
            if gap is not None and gap.first_seq <= gap.last_seq:
                stream = auditor.cross(transaction, dropped=gap.last_seq - gap.first_seq + 1)
                break
            auditor.read(transaction)
            if progress is not None and auditor.events - told >= PROGRESS_EVENTS:
                told = auditor.events
                progress(told)


class _Auditor:
    def __init__(self, source: JournalSource | None) -> None:
        self.events = 0
        self._source = source
        self._stopped = False
        self._started: Seq | None = None
        self._gaps: list[Gap] = []
        self._cut: list[LockCut] = []
        self._totals: Counter[str] = Counter()
        self._unread: JournalError | None = None
        self._places: dict[TxnId, str] = {}
        self._undone = 0
        self._rolled_back = 0
        self._transactions = 0
        self._seq = Seq(0)
        self._transaction = TxnId(0)
        self._findings = Findings()
        self._fingerprints: bool | None = None
        self._state: State | None = None

    def begin(self, source: JournalSource) -> Iterator[StoredTransaction]:
        """Where to start: at the first transaction, or at the checkpoint before it, or at the next one."""
        self._places = self._places_in(source)
        first = next(source.transactions(), None)
        if first is not None and first.number == 1:
            return source.transactions()
        start = source.checkpoint_before(None if first is None else first.first_seq - 1)
        if first is not None and (start is None or start.number != first.number - 1):
            start = source.checkpoint_after(first.first_seq)
        if start is None:
            what = "it is empty" if first is None else f"it begins with transaction {first.number}"
            raise ReplayError(f"there is nothing to audit: {what}, and there is no checkpoint")
        config = source.recorded_config()
        if config is not None:
            self._fingerprints = config.get(SETTING) is True
        self._go_on(start)
        self._started = start.seq
        self._gaps.append(Gap(first_seq=1, last_seq=start.seq, reason="not here", resumed_seq=start.seq))
        return source.transactions(start.number + 1)

    def _places_in(self, source: JournalSource) -> dict[TxnId, str]:
        try:
            return dict(source.checkpoint_places())
        except JournalFormatError as error:
            self._findings.add("checkpoint", str(error))
            return {}

    def stop(self, error: JournalError) -> None:
        """Reading ends here: `error` says why, and nothing after it is known."""
        self._unread = error
        if self._state is not None and not self._stopped:
            self._end_part()
            self._totals.pop("locks_open_at_end", None)
        self._stopped = True

    def cross(self, transaction: StoredTransaction, *, dropped: int) -> Iterator[StoredTransaction] | None:
        """Events before `transaction` were never stored: go on from the next checkpoint, if there is one."""
        first, last = Seq(self._seq + 1), transaction.last_seq
        self._end_part()
        self._totals.pop("locks_open_at_end", None)
        self._transactions += 1
        self.events += len(transaction.events)
        after = None if self._source is None else self._source.checkpoint_after(last)
        self._gaps.append(
            Gap(
                first_seq=first,
                last_seq=last if after is None else max(last, after.seq),
                dropped=dropped,
                resumed_seq=None if after is None else after.seq,
            )
        )
        if after is None or self._source is None:
            self._stopped = True
            return None
        self._go_on(after)
        return self._source.transactions(after.number + 1)

    def _go_on(self, checkpoint: StoredCheckpoint) -> None:
        self._watch(restore(checkpoint).state)
        self._seq, self._transaction = checkpoint.seq, checkpoint.number
        for check in self._checks:
            check.resume()

    def _end_part(self) -> None:
        """The state will not be known any more: what holds to the end has to hold here."""
        if self._state is None:
            return
        for check in self._checks:
            check.end()
        self._totals.update(self._counts)
        self._cut += self._locks.cut

    def read(self, transaction: StoredTransaction) -> None:
        """Check one transaction."""
        findings = self._findings
        findings.transaction = transaction.number
        findings.seq = transaction.first_seq
        self._check_numbers(transaction)
        state = self._state
        ended = 0
        if state is not None:
            self._context.reading = transaction
            ended = self._ends.all if transaction.rolled_back else 0
        stored: Any  # compiled, an event of a class that nobody knows would be a TypeError
        for ordinal, stored in enumerate(transaction.events):
            findings.seq = seq = stored.seq
            if seq != self._seq + 1:
                findings.add("sequence", f"seq {seq} follows seq {self._seq}")
            self._seq = seq
            event = stored.event
            if state is None:
                state = self._open(event)
                ended = self._ends.all
                continue
            if stored.undone:
                ended = self._ends.all
                self._undone += 1
                self._rollbacks.saw_undone(event, seq=seq)
                if isinstance(event, RolledBack):
                    self._rollbacks.saw_rollback(event, ordinal=ordinal)
                continue
            plan = self._plans.get(type(event))
            if plan is None:
                ended = self._ends.all
                self._cannot_fold(event)
                continue
            ended |= plan.ends
            try:
                subject = plan.structure(state, event)
            except ReplayError as error:
                ended = self._ends.all
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
            for end in self._ends[ended]:
                end(transaction)
            end_transaction(state)
            if transaction.number in self._places:
                self._counts["full_states"] += 1
                wrong = self._full_state_fault(state, self._places[transaction.number])
                if wrong is None:
                    self._counts["full_states_reproduced"] += 1
                else:
                    self._findings.add("checkpoint", wrong)

    def _full_state_fault(self, state: State, stored: str) -> str | None:
        """How the full state that is stored here differs from `state`: digests leave out origins and ids."""
        digest = state.digest()
        if digest != stored:
            return f"the full state stored here has digest {stored[:16]}..., replay's is {digest[:16]}..."
        if self._source is None:
            return None
        try:
            found = self._source.checkpoint_after(self._seq)
            if found is None or (found.number, found.seq) != (self._transaction, self._seq):
                return "the full state of this transaction does not stand at its last seq"
            if found.state != encode_state(state):
                return "the full state stored here is not the one that the events amount to"
        except JournalError as error:
            return str(error)
        return None

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

    def _open(self, event: Any) -> State:
        state = open_state(event)
        if isinstance(event, CacheOpened):
            check_opening(event, self._findings)
            self._fingerprints = event.config.get(SETTING) is True
        self._watch(state)
        return state

    def _watch(self, state: State) -> None:
        """Put every check beside `state`."""
        self._state = state
        self._context = context = Context(state, self._findings, fingerprints=self._fingerprints)
        self._counts = context.counts
        self._rollbacks = Rollbacks(context)
        self._locks = Locks(context)
        self._checks = all_checks(context, locks=self._locks, rollbacks=self._rollbacks)
        self._ends = Ends(self._checks)
        self._plans = plans_for(self._checks, self._ends)

    def _cannot_fold(self, event: Any) -> None:
        self._findings.add("well-formed", refusal(event).problem)

    def _does_not_fit(self, event: Any, error: ReplayError) -> None:
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
        if not self._stopped:
            self._end_part()
        findings = self._findings
        if chain is not None:
            findings.take_over(chain)
        if state is None and self._unread is None:
            self._unread = ReplayError("the journal holds no event: there is nothing to audit")
        if self._unread is not None:
            if not findings.totals.total():
                raise self._unread
            self._note_unread(self._unread)
        reports = tuple(
            InvariantReport(
                id=invariant.id,
                sentence=invariant.sentence,
                status=self._status(invariant.id, chain_checked=chain is not None),
                findings=findings.totals[invariant.id],
            )
            for invariant in INVARIANTS
        )
        counts = Counts(
            events=self.events,
            undone_events=self._undone,
            transactions=self._transactions,
            transactions_rolled_back=self._rolled_back,
            mixed_nodes_at_end=0 if state is None else sum(node.is_mixed for node in state.nodes.values()),
            **self._totals,
        )
        return Verdict(
            verdict=self._outcome(),
            counts=counts,
            invariants=reports,
            findings=findings.kept([invariant.id for invariant in INVARIANTS]),
            locks_cut=tuple(self._cut),
            gaps=tuple(self._gaps),
            checkpoint_seq=self._started,
            notes=tuple(_notes(counts)),
        )

    def _outcome(self) -> Literal["pass", "fail", "unverified"]:
        if self._findings.totals.total():
            return "fail"
        return "unverified" if self._gaps or self._totals["pages_content_unread"] else "pass"

    def _note_unread(self, error: JournalError) -> None:
        findings = self._findings
        findings.seq, findings.transaction = Seq(self._seq + 1), TxnId(self._transaction + 1)
        invariant = "well-formed"
        if isinstance(error, UnreadableRow):
            findings.seq, findings.transaction = Seq(error.seq), TxnId(error.number)
            invariant = error.invariant
        findings.add(invariant, str(error))
        self._gaps.append(Gap(first_seq=self._seq + 1, last_seq=None, reason="unreadable", resumed_seq=None))

    def _status(self, invariant: str, *, chain_checked: bool) -> Status:
        if self._findings.totals[invariant]:
            return "failed"
        if invariant == "chain":
            return "verified" if chain_checked else "not_checked"
        if invariant == "checkpoint" and not self._totals["checkpoints"]:
            return "not_checked"
        if invariant == "locked-content":
            if self._totals["pages_content_unread"]:
                return "unverified"
            if not self._totals["pages_fingerprinted"]:
                return "not_checked"
        return "unverified" if self._gaps else "verified"


def _notes(counts: Counts) -> Iterator[str]:
    """What else has to be known of the evidence for what pages held."""
    if counts.pages_content_unknown:
        yield CONTENT_UNKNOWN
    if counts.pages_content_unread:
        yield CONTENT_UNREAD
