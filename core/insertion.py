"""Insert: the tree takes over what it lacks and frees what it has.

Positions and lengths are pages in here. The row that is inserted, `[0, end)`, has these owners:

    [0, base)     the tree's own, or already given back; never touched     base = protected length
    [base, end)   the caller's or the request's, ownership leaves it       `incoming`
    [base, dead)  of these the SWA peers were given back (or are freed)    dead = swa_evicted_len

What happens to a node N that the row passes is DESIGN 5's table: a live node keeps everything and the
incoming pages are freed; an unlocked tombstone takes Full and SWA over; a locked tombstone keeps its Full,
which a running request reads, and takes the SWA alone; what lies before `dead` stays a tombstone.

Events come in token order and the place of every node boundary is noted, so that a commit can undo
exactly the part that the next match would not return.
"""

from kvledger.core.events import (
    Cause,
    NodeCreated,
    NodeTouched,
    Origin,
    Pages,
    RecoveryMode,
    SwaRecovered,
    TokenRange,
)
from kvledger.core.held_pages import free_held, free_held_swa
from kvledger.core.ids import NodeId, RequestId
from kvledger.core.inputs import key_part
from kvledger.core.locking import split
from kvledger.core.matching import common_bytes
from kvledger.core.node import Node, only_child, parent_of
from kvledger.core.page_arrays import part_of
from kvledger.core.transaction import Ledger, Place, Savepoint
from kvledger.core.uses import Published

NOTHING = 0
FULL_AND_SWA = 1
FULL_ONLY = 2
SWA_ONLY = 3
TOOK_FULL = (FULL_AND_SWA, FULL_ONLY)
TOOK_SWA = (FULL_AND_SWA, SWA_ONLY)


class Row:
    """What is inserted, and as whose.

    `key` holds the tokens from page `key_start` on, `incoming` the pages [base, end), read-only, and `peers`
    the SWA pages that stand beside them when the insert begins. `run`: the incoming are a run.
    """

    __slots__ = (
        "base",
        "dead",
        "end",
        "incoming",
        "key",
        "key_start",
        "namespace",
        "origin",
        "owner",
        "peers",
        "run",
    )

    def __init__(
        self,
        namespace: str,
        *,
        key: bytes | bytearray,
        incoming: Pages,
        peers: Pages,
        base: int,
        dead: int,
        end: int,
        owner: RequestId | None,
        origin: Origin,
        key_start: int = 0,
        run: bool = False,
    ) -> None:
        self.namespace = namespace
        self.key = key
        self.incoming = incoming
        self.peers = peers
        self.base = base
        self.dead = dead
        self.end = end
        self.owner = owner
        self.origin = origin
        self.key_start = key_start
        self.run = run

    def part(self, first: int, end: int) -> Pages:
        """Incoming pages of the positions [first, end)."""
        return part_of(self.incoming, first - self.base, end - self.base)

    def part_peers(self, first: int, end: int) -> Pages:
        """The SWA pages beside those."""
        return part_of(self.peers, first - self.base, end - self.base)


class Step:
    """What was done between two places, up to page position `end`, which ends inside or with `node`."""

    __slots__ = ("adopted", "after", "duplicates", "end", "node")

    def __init__(self, end: int, node: Node, after: Place, *, adopted: int, duplicates: int) -> None:
        self.end = end
        self.node = node
        self.after = after
        self.adopted = adopted
        self.duplicates = duplicates


class Insertion:
    """One insert under way, and its result.

    `reached`: how far Full went before; `left`: the node at whose end the row left the tree, where it had
    come from farther up or others go on; `other`: the one way on from there.
    """

    __slots__ = ("ledger", "left", "other", "reached", "row", "start", "steps", "touch")

    def __init__(self, ledger: Ledger, row: Row, *, touch: bool) -> None:
        self.ledger = ledger
        self.row = row
        self.touch = touch
        self.steps: list[Step] = []
        self.reached = 0
        self.left: Node | None = None
        self.other: Node | None = None
        self.start: Savepoint = ledger.mark()

    def run(self, node: Node, position: int) -> None:
        """Insert from `node`, which ends at page `position`, on. O(pages of the row + nodes passed)."""
        state, row = self.ledger.state, self.row
        if self.touch:
            self._touch_above(node)
        page_bytes = state.page_bytes
        limit = (row.end - row.key_start) * page_bytes
        while position < row.end:
            offset = (position - row.key_start) * page_bytes
            child = node.children.get(key_part(row.key, offset, offset + page_bytes))
            if child is None:
                break
            size = len(child.key)
            if offset + size > limit or not row.key.startswith(child.key, offset):
                size = common_bytes(row.key, offset, limit, child.key, page_bytes)
            end = position + size // page_bytes
            partly = size < len(child.key)
            if partly and (end < row.end or self._recovers(child, end)):
                child = split(self.ledger, child, end * state.page_size)
                partly = False
            self._pass(child, position, end, partly)
            node = child
            position = end
            if partly:
                break
        self.reached = position
        if position < row.end:
            if not node.is_root and (position > row.base or node.children):
                self.left, self.other = node, only_child(node)
            self._grow(node, position)

    def _pass(self, node: Node, start: int, end: int, partly: bool) -> None:
        """The row covers [start, end) of `node`: all of it unless `partly`."""
        state, row = self.ledger.state, self.row
        page = state.page_size
        if row.base >= end:
            self._touch(node, end)
            self._step(end, node, NOTHING, 0)
            return
        if row.base > start:
            split(self.ledger, node, row.base * page)
            start = row.base
        if node.swa is not None:
            self._touch(node, end)
            self._free_incoming(start, end)
            self._step(end, node, NOTHING, end - start)
            return
        if not self._recovers(node, end):
            self._touch(node, end)
            self._free_incoming(start, end)
            self._step(end, node, NOTHING, end - start)
            return
        if row.dead > start:
            head = split(self.ledger, node, row.dead * page)
            self._touch(head, row.dead)
            self._free_incoming(start, row.dead)
            self._step(row.dead, head, NOTHING, row.dead - start)
            start = row.dead
        self._recover(node, start, end)

    def _recovers(self, node: Node, end: int) -> bool:
        """True if the row brings SWA for some of the tombstone `node` before `end`, and may use it."""
        if node.swa is not None or self.row.dead >= end or self.row.base >= end:
            return False
        return not node.full_lock or self.ledger.state.config.locked_recovery == "remap"

    def _recover(self, node: Node, start: int, end: int) -> None:
        """A tombstone comes back to life with the incoming SWA pages."""
        row = self.row
        incoming = row.part(start, end)
        swa = row.part_peers(start, end)
        origin = node.full_origin or row.origin
        locked = node.full_lock > 0
        self.ledger.apply(
            SwaRecovered(
                node.id,
                RecoveryMode.KEEP_LOCKED_FULL if locked else RecoveryMode.ADOPT_INCOMING,
                node.full,
                incoming,
                swa,
                self.ledger.state.ticks(),
                origin if locked else row.origin,
                row.origin,
            )
        )
        self._step(end, node, SWA_ONLY if locked else FULL_AND_SWA, end - start if locked else 0)

    def _grow(self, node: Node, position: int) -> None:
        """New nodes under `node`: a tombstone before `dead`, live ones after it, the leaf one window."""
        row = self.row
        if row.dead > position:
            end = min(row.dead, row.end)
            self._free_swa_before_dead(position, end)
            node = self._create(node, position, end, live=False)
            position = end
        window = self.ledger.state.window_pages
        if row.end - position > window:
            node = self._create(node, position, row.end - window, live=True)
            position = row.end - window
        if position < row.end:
            self._create(node, position, row.end, live=True)

    def _create(self, parent: Node, start: int, end: int, live: bool) -> Node:
        ledger, row = self.ledger, self.row
        state = ledger.state
        full = row.part(start, end)
        first, last = start - row.key_start, end - row.key_start
        node = state.new_node_id()
        if row.run:
            state.pages.note_run(full)
        ledger.apply(
            NodeCreated(
                node,
                None if parent.is_root else parent.id,
                row.namespace,
                start * state.page_size,
                key_part(row.key, first * state.page_bytes, last * state.page_bytes),
                full,
                row.part_peers(start, end) if live else None,
                state.ticks(),
                row.origin,
                row.origin if live else None,
            )
        )
        created = state.nodes[node]
        self._step(end, created, FULL_AND_SWA if live else FULL_ONLY, 0)
        return created

    def _free_incoming(self, start: int, end: int) -> None:
        """Incoming pages that the tree does not need: both sides."""
        self._free_swa_before_dead(start, min(end, self.row.dead))
        free_held(self.ledger, self.row.owner, self.row.part(start, end), Cause.DUPLICATE)

    def _free_swa_before_dead(self, start: int, end: int) -> None:
        """SWA peers that lie before `dead` left the window: freed whatever becomes of their Full page."""
        if end > start:
            full = self.row.part(start, end)
            free_held_swa(self.ledger, self.row.owner, full, Cause.WINDOW)

    def _touch(self, node: Node, end: int) -> None:
        """A node in the last window of the row, or its last one, was used."""
        state = self.ledger.state
        if self.touch and end > self.row.end - state.window_pages:
            self.ledger.apply(NodeTouched((node.id,), state.ticks()))

    def _touch_above(self, node: Node) -> None:
        """Nodes at and above the one the insert starts from, as far as the row's last window reaches."""
        state = self.ledger.state
        window_start = (self.row.end - state.window_pages) * state.page_size
        above: list[NodeId] = []
        while not node.is_root and node.end > window_start:
            above.append(node.id)
            node = parent_of(node)
        if above:
            above.reverse()
            self.ledger.apply(NodeTouched(tuple(above), state.ticks(len(above))))

    def _step(self, end: int, node: Node, adopted: int, duplicates: int) -> None:
        self.steps.append(Step(end, node, self.ledger.place(), adopted=adopted, duplicates=duplicates))

    def use(self, upto: int) -> Published | None:
        """What the steps that end at or before page `upto` tell the order of eviction."""
        page, row = self.ledger.state.page_size, self.row
        last = next((step.node for step in reversed(self.steps) if step.end <= upto), None)
        if last is None:
            return None
        left, other = (self.left, self.other) if upto > self.reached else (None, None)
        return Published(last, row.base * page, upto * page, upto - row.base, left, other)

    def taken_over(self, upto: int) -> tuple[tuple[TokenRange, ...], tuple[TokenRange, ...], int]:
        """What the steps that end at or before page `upto` amount to.

        Maximal token ranges of which the tree took Full, and SWA, over, and the tokens whose incoming Full
        page was freed.
        """
        page = self.ledger.state.page_size
        full: list[TokenRange] = []
        swa: list[TokenRange] = []
        duplicates = 0
        start = self.row.base
        for step in self.steps:
            end = step.end
            if end > upto:
                break
            kind = step.adopted
            if kind in TOOK_FULL:
                _extend(full, start * page, end * page)
            if kind in TOOK_SWA:
                _extend(swa, start * page, end * page)
            duplicates += step.duplicates
            if end > start:
                start = end
        return tuple(full), tuple(swa), duplicates * page

    def took_all(self, upto: int) -> bool:
        """Whether the tree took over Full of all the row brought before page `upto`, where a step ends."""
        return all(step.adopted in TOOK_FULL for step in self.steps if step.end <= upto)

    def recovered_under_lock(self, upto: int) -> list[Node]:
        """Locked nodes that came back to life, among steps that end at or before page `upto`."""
        live = (FULL_AND_SWA, SWA_ONLY)
        return [s.node for s in self.steps if s.end <= upto and s.adopted in live and s.node.full_lock]


def _extend(ranges: list[TokenRange], start: int, end: int) -> None:
    """Add a range that begins where the last one ends, or later."""
    if ranges and ranges[-1][1] == start:
        ranges[-1] = (ranges[-1][0], end)
    else:
        ranges.append((start, end))
