"""Why the match of a prefix is not longer, found by walking the replayed tree.

The rule is that of DESIGN §5: a prefix is usable where the run of live SWA tokens since the last tombstone is
at least the window, or where there was no tombstone. It is written here a second time on purpose: the
journal's side shares nothing with the cache.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from kvledger.api.problems import conflict
from kvledger.api.projection import Standing
from kvledger.api.schemas.tree import ExplanationOut
from kvledger.journal.state import Node, State
from kvledger.journal.tokens import TOKEN_BYTES

PATH_SHOWN = 1_000
"""Nodes of the path named in one answer, the first ones."""

ABSENCE = "no namespace of this name is in the tree at this seq"
EMPTY = "the tree is empty at this seq"


@dataclass(slots=True)
class _Walk:
    """How far a prefix goes: `full` by Full, `usable` by both; `run` live tokens stand before `full`."""

    path: list[Node]
    full: int = 0
    usable: int = 0
    usable_in: Node | None = None
    run: int = 0
    dead: bool = False


def explain(
    standing: Standing, tokens: bytes, *, namespace: str | None, absence: str = ABSENCE
) -> ExplanationOut:
    """Explain the match of `tokens` (int32 little-endian) in a namespace; None is one that is not there.

    `absence` says so of such a one, beside others. Raises a refusal (409) where the journal does not keep
    tokens. Cost: O(tokens + siblings on the path).
    """
    state = standing.state
    if state.token_policy != "full":
        kept = "only hashes of tokens" if state.token_policy == "hash" else "no tokens"
        raise conflict("Tokens are not stored", detail=f"this journal keeps {kept}: nothing can be compared")
    roots = None if namespace is None else state.roots.get(namespace)
    walk = _walk(state, tokens, () if roots is None else roots.values())
    count = len(tokens) // TOKEN_BYTES
    whole = count // state.page_size * state.page_size
    tombstone = next((node for node in walk.path if node.swa is None and node.end > walk.usable), None)
    missing = max(0, state.window - walk.run) if walk.usable < walk.full else 0
    barriers = _barriers(walk, state.window) if walk.usable < walk.full else []
    if roots is None:
        sentence = f"0 of {count} tokens match: {absence if state.nodes else EMPTY}"
    elif barriers:
        sentence = _cut_off(walk, count, state.window, barriers)
    else:
        sentence = _no_further(walk, whole, count)
    return ExplanationOut(
        at=standing.at,
        length=walk.usable,
        full_length=walk.full,
        branch_length=max(walk.full, walk.usable),
        node=None if walk.usable_in is None else walk.usable_in.id,
        first_tombstone=None if tombstone is None else tombstone.start,
        deciding_tombstone=barriers[-1].start if barriers else None,
        live_missing=missing,
        namespace_found=roots is not None,
        sentence=sentence,
        path=tuple(node.id for node in walk.path[:PATH_SHOWN]),
    )


def _walk(state: State, tokens: bytes, children: Iterable[Node]) -> _Walk:
    walk = _Walk(path=[])
    page_bytes = state.page_size * TOKEN_BYTES
    end = len(tokens) // page_bytes * page_bytes
    at = 0
    while at < end:
        page = tokens[at : at + page_bytes]
        node = next((child for child in children if child.tokens.startswith(page)), None)
        if node is None:
            break
        same = _same_bytes(node.tokens, tokens[at:end], page_bytes)
        at += same
        walk.path.append(node)
        walk.full = at // TOKEN_BYTES
        if node.swa is None:
            walk.run, walk.dead = 0, True
        else:
            walk.run += same // TOKEN_BYTES
            if not walk.dead or walk.run >= state.window:
                walk.usable, walk.usable_in = walk.full, node
        if same < len(node.tokens):
            break
        children = node.children.values()
    return walk


def _same_bytes(edge: bytes, rest: bytes, page_bytes: int) -> int:
    """How many bytes of `edge`, in whole pages, `rest` begins with."""
    if rest.startswith(edge):
        return len(edge)
    size = min(len(edge), len(rest))
    differ = np.flatnonzero(
        np.frombuffer(edge, "<i4", size // TOKEN_BYTES) != np.frombuffer(rest, "<i4", size // TOKEN_BYTES)
    )
    same = int(differ[0]) * TOKEN_BYTES if differ.size else size
    return same // page_bytes * page_bytes


def _barriers(walk: _Walk, window: int) -> list[Node]:
    """The tombstones that keep the match from reaching `full`: within a window before it none may stand.

    The last one decides: what is live behind it is all that counts.
    """
    return [node for node in walk.path if node.swa is None and node.end > walk.full - window]


def _cut_off(walk: _Walk, count: int, window: int, barriers: list[Node]) -> str:
    """Why a match ends before Full does: too little SWA is live before the end of Full."""
    last = barriers[-1]
    live_from = walk.full - walk.run
    # Where the window reaches beyond the beginning, all that there is has to be live.
    needed = min(window, walk.full)
    dead = sum(
        min(node.end, live_from) - max(node.start, walk.full - needed)
        for node in barriers
        if node.start < live_from
    )
    wanted = needed - walk.run
    live = f"is for the last {walk.run} only" if walk.run else f"is not right before {walk.full}"
    others = f", the last of {len(barriers)} in the way" if len(barriers) > 1 else ""
    some = "" if dead == wanted else f", {dead} of which are not"
    return (
        f"{walk.usable} of {count} tokens match, although Full alone would reach {walk.full}: SWA would have "
        f"to be live for the {needed} tokens before {walk.full}, and {live}. What decides is the tombstone "
        f"node {last.id}{others}, tokens {last.start} to {last.end - 1}: the {wanted} tokens right before "
        f"{live_from} would have to be live too{some}"
    )


def _no_further(walk: _Walk, whole: int, count: int) -> str:
    """Why a match ends where Full ends."""
    if walk.full < whole:
        return f"{walk.usable} of {count} tokens match: the tree holds nothing further along this prefix"
    rest = count - whole
    if not whole:
        return f"0 of {count} tokens match: they do not fill a page, and only whole pages can match"
    tail = f"; the last {rest} do not fill a page" if rest else ""
    return f"{walk.usable} of {count} tokens match: every whole page{tail}"
