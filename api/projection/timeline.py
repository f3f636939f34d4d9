"""States of one journal at any seq, the newest included, and news of its growth.

The newest state is the follower's as soon as that has caught up; while it is still loading, or has not heard
of the first transaction yet, the newest state is found like a past one: the store says where the journal
ends, and the way there begins at the nearest checkpoint. A state is handed out for the time of one answer and
held still for it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from kvledger.api.problems import conflict, nothing_recorded, pruned, unknown
from kvledger.api.projection.boundaries import Boundaries, Boundary, not_known
from kvledger.api.projection.bus import LiveBus
from kvledger.api.projection.follower import POLL_SECONDS, Follower, Listener
from kvledger.api.projection.lease_births import LeaseBirths
from kvledger.api.projection.pace import Pace
from kvledger.api.projection.past import Past
from kvledger.api.projection.snapshots import SNAPSHOT_BYTES, SNAPSHOT_EVENTS, Snapshots
from kvledger.api.projection.standing import Standing
from kvledger.api.schemas.common import At
from kvledger.api.schemas.journals import Following
from kvledger.core.errors import JournalFormatError
from kvledger.journal.reader import JournalReader
from kvledger.journal.replay import ReplayError


class Timeline:
    """One journal in time. Safe from any thread, while the journal grows or is pruned.

    `told` is how a message of the journal is told, which quotes what stands in a damaged cell.
    """

    def __init__(
        self,
        reader: JournalReader,
        *,
        listeners: Sequence[Listener] = (),
        bus: LiveBus | None = None,
        pace: Pace | None = None,
        snapshot_events: int = SNAPSHOT_EVENTS,
        snapshot_bytes: int = SNAPSHOT_BYTES,
        poll_seconds: float = POLL_SECONDS,
        told: Callable[[str], str] = str,
    ) -> None:
        self._told = told
        self._pace = Pace() if pace is None else pace
        self.births = LeaseBirths(reader)
        """When the leases of the journal's states began."""
        self._boundaries = Boundaries(reader)
        self._snapshots = Snapshots(limit_bytes=snapshot_bytes)
        self._past = Past(reader, snapshots=self._snapshots, pace=self._pace)
        self._floor = Boundary(0, 0, None)
        self._follower = Follower(
            reader,
            boundaries=self._boundaries,
            listeners=[self.births, *listeners],
            snapshots=self._snapshots,
            pace=self._pace,
            bus=bus,
            snapshot_events=snapshot_events,
            poll_seconds=poll_seconds,
            told=told,
        )

    def start(self) -> None:
        """Begin to follow the journal, in a thread of its own."""
        self._follower.start()

    def stop(self) -> None:
        """Stop following; what is known stays."""
        self._follower.stop()

    @property
    def following(self) -> Following:
        """How far the follower is."""
        follower = self._follower
        return Following(
            state=follower.phase,
            seq=follower.heard.seq,
            snapshots=len(self._snapshots),
            problem=follower.problem,
        )

    @property
    def heard_seq(self) -> int:
        """The last seq that was taken in: whatever is before it is stored, and settled."""
        return self._follower.heard.seq

    @property
    def has_failed(self) -> bool:
        """Whether the journal does not fold, as far as it was followed."""
        return self._follower.phase == "failed"

    def look(self) -> None:
        """Look at the journal now rather than at the next poll."""
        self._follower.look()

    def subscribe(self, callback: Callable[[int], None]) -> Callable[[], None]:
        """Have `callback` called with the newest seq as the journal grows, in the follower's thread.

        It must not block. Returns what ends the subscription.
        """
        return self._follower.subscribe(callback)

    def wait_beyond(self, seq: int, timeout: float | None = None) -> int:
        """Wait until the journal was followed beyond `seq`, or `timeout` seconds; returns how far it was."""
        return self._follower.wait_beyond(seq, timeout)

    def wait_loaded(self, timeout: float | None = None) -> bool:
        """Wait until the end of the journal was reached once, `timeout` seconds at most; whether it was."""
        return self._follower.wait_loaded(timeout)

    def place(self, seq: int | None) -> At:
        """Which boundary `seq` stands for (None: the newest), without computing a state.

        Raises a refusal: 404 for a seq that is not there yet, 410 for one that was pruned, 409 for one at
        which nothing is known, 503 for the newest where nothing is recorded yet.
        """
        if seq is None:
            newest = self._newest()
            return _at(None, newest, settled=False)
        boundary = self._boundary(seq)
        return _at(seq, boundary, settled=self._is_past(boundary))

    @contextmanager
    def state_at(self, seq: int | None) -> Iterator[Standing]:
        """The state at the last boundary at or before `seq` (None: the newest), held still for the block.

        Raises as `place`, and a refusal (409) where the journal does not fold up to there.
        """
        follower = self._follower
        boundary = None if seq is None else self._boundary(seq)
        if self._standing_still(boundary):
            with self._pace.spell(), follower.lock:
                fold = follower.fold
                if fold is not None and self._standing_still(boundary):
                    yield Standing(fold.state, _at(seq, follower.heard, settled=False), follower.derived)
                    return
        boundary = self._newest() if boundary is None else boundary
        with self._past_state(seq, boundary) as standing, self._pace.spell():
            yield standing

    @contextmanager
    def states_at(self, first: int, second: int) -> Iterator[tuple[Standing, Standing]]:
        """The states at two seqs at once. Raises as `state_at`."""
        boundaries = self._boundary(first), self._boundary(second)
        with (
            self._past_state(first, boundaries[0]) as one,
            self._past_state(second, boundaries[1]) as other,
            self._pace.spell(),
        ):
            yield one, other

    def _standing_still(self, boundary: Boundary | None) -> bool:
        """Whether the follower's own state is the one asked for."""
        follower = self._follower
        if follower.phase in ("loading", "failed") or follower.fold is None or not follower.heard.transaction:
            return False
        return boundary is None or boundary.transaction == follower.heard.transaction

    @contextmanager
    def _past_state(self, seq: int | None, boundary: Boundary) -> Iterator[Standing]:
        failed = self._follower.failed_seq
        if failed is not None and boundary.seq > failed:
            raise _does_not_fold(boundary.seq, str(self._follower.problem))
        settled = seq is not None and self._is_past(boundary)
        with ExitStack() as held:
            try:
                state, derived = held.enter_context(self._past.at(boundary))
            except (ReplayError, JournalFormatError) as error:
                # Between the look at what is stored and the reading of it, it may have been pruned.
                self._refuse_pruned(boundary.seq)
                raise _does_not_fold(boundary.seq, self._told(str(error))) from error
            yield Standing(state, _at(seq, boundary, settled=settled), derived)

    def _newest(self) -> Boundary:
        """The boundary that the newest state stands at. Raises a refusal where that is not known."""
        follower = self._follower
        if follower.phase == "failed":
            raise _does_not_fold(follower.heard.seq, str(follower.problem))
        newest = follower.heard
        if follower.phase == "loading" or not newest.transaction:
            # It has not heard of anything: what is recorded is what the store holds.
            newest = self._boundaries.newest()
            if newest.transaction:
                follower.look()
        elif follower.fold is None:
            raise not_known(newest.seq)
        if not newest.transaction:
            raise nothing_recorded()
        return newest

    def _boundary(self, seq: int) -> Boundary:
        follower = self._follower
        if seq >= follower.heard.seq or follower.phase == "loading":
            end = self._boundaries.newest()
            if seq > end.seq:
                raise unknown("seq", detail=f"seq {seq} is not there yet, the journal ends at {end.seq}")
            if seq == end.seq and end.transaction:
                return end
        oldest = self._refuse_pruned(seq)
        return oldest if seq == oldest.seq else self._boundaries.at(seq)

    def _is_past(self, boundary: Boundary) -> bool:
        """Whether an event is stored after `boundary`: then the state there can never change."""
        return boundary.seq < self._follower.heard.seq or boundary.seq < self._boundaries.newest().seq

    def _refuse_pruned(self, seq: int) -> Boundary:
        """Raise a refusal for a seq whose events were pruned (410), or before the first transaction (404).

        The state that they ended in was kept as a checkpoint: at its seq, the last before what is stored, it
        is known. Returns that boundary.
        """
        oldest = self._boundaries.oldest()
        if oldest.seq > self._floor.seq:
            self._floor = oldest
            self._snapshots.forget_before(oldest.seq)
            self._past.forget_before(oldest.seq)
            self._boundaries.forget()
        if seq < oldest.seq:
            raise pruned(
                f"seq {seq} is not in the store any more: what it holds begins with seq {oldest.seq + 1}; "
                "read the exported files"
            )
        if not seq:
            raise unknown("seq", detail="seqs begin at 1: nothing is known before the first transaction")
        return oldest


def _at(asked: int | None, boundary: Boundary, *, settled: bool) -> At:
    return At(
        asked=asked,
        seq=boundary.seq,
        transaction=boundary.transaction,
        time_us=boundary.time_us,
        settled=settled,
    )


def _does_not_fold(seq: int, problem: str) -> Exception:
    return conflict("The journal does not fold", detail=f"the state at seq {seq} cannot be known: {problem}")
