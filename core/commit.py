"""Publishing a request's computed tokens: into the tree, and back onto its own row.

The row of an open request, in pages, and who frees each part:

    [0, protected)          on the locked path; the tree's
    [protected, row end)    the request's own; before the frontier in the Full pool only

Commit is one transaction: insert from the lease's node, match what is there now, keep what the match
accepts and undo the rest from there on, lock the new path, let go of the old one, and let row, node,
protected length and lease change together. What is refused stays the request's own.
"""

import numpy as np
import numpy.typing as npt

from kvledger.core.errors import InvariantViolation
from kvledger.core.events import (
    FingerprintReason,
    Origin,
    Pages,
    PrefixInserted,
    RequestRowChanged,
    RollbackCause,
    TokenRange,
)
from kvledger.core.fingerprints import fingerprint
from kvledger.core.free_pages import EMPTY
from kvledger.core.ids import RequestId
from kvledger.core.insertion import Insertion, Row
from kvledger.core.locking import lock, release
from kvledger.core.matching import live_run
from kvledger.core.node import Node, parent_of
from kvledger.core.results import Committed
from kvledger.core.row_passes import joined
from kvledger.core.state import LeaseState, RequestState
from kvledger.core.transaction import Ledger


def insert_own(
    ledger: Ledger, request: RequestState, lease: LeaseState, upto: int, *, touch: bool
) -> Insertion:
    """Insert the request's own pages before token `upto`, a page multiple past the protected length."""
    state = ledger.state
    page = state.page_size
    base, end = lease.length // page, upto // page
    incoming = request.row_slice(base, end)
    insertion = Insertion(
        ledger,
        Row(
            namespace=request.namespace,
            key=request.tokens,
            incoming=incoming,
            peers=state.pages.peers(incoming),
            base=base,
            dead=request.frontier // page,
            end=end,
            owner=request.id,
            origin=Origin(request.id, request.epoch),
        ),
        touch=touch,
    )
    insertion.run(state.root_or_new(request.namespace) if lease.node is None else lease.node, base)
    return insertion


def journal_insert(ledger: Ledger, insertion: Insertion, upto: int) -> PrefixInserted:
    """Tell what the insert amounts to, up to page `upto`; what was refused past it is undone already."""
    row, page = insertion.row, ledger.state.page_size
    adopted_full, adopted_swa, duplicates = insertion.taken_over(upto)
    told = PrefixInserted(
        row.namespace,
        row.owner,
        upto * page,
        (row.end - upto) * page,
        insertion.reached * page,
        row.base * page,
        row.dead * page,
        adopted_full,
        adopted_swa,
        duplicates,
    )
    ledger.apply(told)
    if ledger.state.retention is not None:
        use = insertion.use(upto)
        if use is not None:
            ledger.use(use)
    if ledger.state.fingerprint is not None:
        fingerprint(ledger, insertion.recovered_under_lock(upto), FingerprintReason.RECOVERED)
    return told


def publish(ledger: Ledger, request: RequestState, lease: LeaseState) -> None:
    """Insert all whole computed pages, without matching again: what finish and retract do."""
    page = ledger.state.page_size
    upto = request.computed // page * page
    if upto > request.protected:
        insertion = insert_own(ledger, request, lease, upto, touch=True)
        journal_insert(ledger, insertion, upto // page)


def commit(ledger: Ledger, request: RequestState, old_lease: LeaseState, upto: int) -> Committed:
    """Publish the first `upto` tokens (a page multiple past the protected length) and lock them."""
    page = ledger.state.page_size
    protected = old_lease.length
    base = protected // page
    insertion = insert_own(ledger, request, old_lease, upto, touch=False)
    lease = move_lock(insertion, old_lease, request.id)
    if lease is None:
        return Committed(protected, [], upto - protected)
    accepted = lease.length // page
    ranges: list[TokenRange] = []
    first, pages = accepted, EMPTY
    if not insertion.took_all(accepted):
        tree_pages = path_pages_after(lease.node, base, accepted, page)
        changed = np.flatnonzero(tree_pages != request.row[base:accepted])
        if len(changed):
            first, last = base + int(changed[0]), base + int(changed[-1]) + 1
            pages = tree_pages[first - base : last - base]
            ranges = _ranges(changed + base, page)
    ledger.apply(RequestRowChanged(request.id, request.epoch, lease.id, first, pages, request.row_pages))
    return Committed(lease.length, ranges, upto - lease.length)


def move_lock(insertion: Insertion, old_lease: LeaseState, request_id: RequestId | None) -> LeaseState | None:
    """End an insert that began where `old_lease` ends: keep what a match accepts, and lock that instead.

    None where it accepts nothing past the old lock, which then stays. O(steps + path).
    """
    ledger, row = insertion.ledger, insertion.row
    page = ledger.state.page_size
    accepted, node = _accepted(insertion, old_lease.node, row.base)
    if accepted < row.end:
        _undo_refused(insertion, accepted, old_lease.length, request_id)
        if accepted <= row.base:
            return None
    journal_insert(ledger, insertion, accepted)
    lease = lock(
        ledger,
        node,
        namespace=row.namespace,
        length=accepted * page,
        full_length=max(accepted, insertion.reached) * page,
        request_id=request_id,
    )
    release(ledger, old_lease)
    return lease


def _accepted(insertion: Insertion, start: Node | None, base: int) -> tuple[int, Node | None]:
    """Match again, from the lease's node on: page length and node of the longest usable prefix.

    A length below `base` is given as `base - 1`: how much shorter it is does not matter.
    """
    state = insertion.ledger.state
    run, tombstoned = live_run(start, state.window)
    usable = not tombstoned or run >= state.window
    accepted, node = (base, start) if usable else (base - 1, None)
    position = base
    for step in insertion.steps:
        if step.node.swa is None:
            run, tombstoned = 0, True
        else:
            run += (step.end - position) * state.page_size
            if not tombstoned or run >= state.window:
                accepted, node = step.end, step.node
        position = step.end
    return accepted, node


def _undo_refused(insertion: Insertion, accepted: int, protected: int, request_id: RequestId | None) -> None:
    """Roll back what lies past the match; with "remap" that is an anomaly, with "skip" it is expected."""
    ledger = insertion.ledger
    state = ledger.state
    page = state.page_size
    upto = insertion.row.end * page
    length = accepted * page
    remap = state.config.locked_recovery == "remap"
    if length < protected and remap:
        who = "the raw caller" if request_id is None else f"request {request_id!r}"
        raise InvariantViolation(
            [
                (
                    "insert-match",
                    f"{who} offered {upto} tokens, and the match ends before the {protected} it has locked",
                )
            ]
        )
    length = max(length, protected)
    savepoint = insertion.start
    for step in insertion.steps:
        if step.end * page <= length:
            savepoint = ledger.savepoint_at(step.after, insertion.start)
    reason = f"{upto - length} of {upto} tokens offered lie past the match at {length}"
    ledger.rollback(savepoint, RollbackCause.REFUSED if remap else RollbackCause.SKIPPED, reason, request_id)


def path_pages_after(node: Node | None, base: int, end: int, page_size: int) -> Pages:
    """Full pages of the path that ends with `node` at page `end`, from page `base` on: read-only."""
    parts: list[Pages] = []
    position = end
    while node is not None and position > base:
        start = node.start // page_size
        parts.append(node.full if start >= base else node.full[base - start :])
        position = start
        node = parent_of(node)
    parts.reverse()
    pages = parts[0] if len(parts) == 1 else joined(parts)
    pages.setflags(write=False)
    return pages


def _ranges(pages: npt.NDArray[np.intp], page_size: int) -> list[TokenRange]:
    """Maximal token ranges of ascending page indices."""
    cuts = np.flatnonzero(np.diff(pages) != 1) + 1
    return [(int(run[0]) * page_size, (int(run[-1]) + 1) * page_size) for run in np.split(pages, cuts)]
