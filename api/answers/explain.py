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


@dataclass(slots=True)
class _Walk:
    """How far a prefix goes: `full` by Full, `usable` by both; `run` live tokens stand before `full`."""

    path: list[Node]
    full: int = 0
    usable: int = 0
    usable_in: Node | None = None
    run: int = 0
    dead: bool = False


def explain(standing: Standing, tokens: bytes, *, namespace: str | None) -> ExplanationOut:
    """Explain the match of `tokens` (int32 little-endian) in a namespace; None is one that is not there.

    Raises a refusal (409) where the journal does not keep tokens. Cost: O(tokens + siblings on the path).
    """
    state = standing.state
    if state.token_policy != "full":
        kept = "only hashes of tokens" if state.token_policy == "hash" else "no tokens"
        raise conflict("Tokens are not stored", detail=f"this journal keeps {kept}: nothing can be compared")
    walk = _walk(state, tokens, namespace)
    count = len(tokens) // TOKEN_BYTES
    whole = count // state.page_size * state.page_size
    tombstone = next((node for node in walk.path if node.swa is None and node.end > walk.usable), None)
    missing = max(0, state.window - walk.run) if walk.usable < walk.full else 0
    return ExplanationOut(
        at=standing.at,
        length=walk.usable,
        full_length=walk.full,
        branch_length=max(walk.full, walk.usable),
        node=None if walk.usable_in is None else walk.usable_in.id,
        first_tombstone=None if tombstone is None else tombstone.start,
        live_missing=missing,
        sentence=_sentence(walk, whole, count, missing, tombstone),
        path=tuple(node.id for node in walk.path[:PATH_SHOWN]),
    )


def _walk(state: State, tokens: bytes, namespace: str | None) -> _Walk:
    walk = _Walk(path=[])
    page_bytes = state.page_size * TOKEN_BYTES
    end = len(tokens) // page_bytes * page_bytes
    children: Iterable[Node] = () if namespace is None else state.roots.get(namespace, {}).values()
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


def _sentence(walk: _Walk, whole: int, count: int, missing: int, tombstone: Node | None) -> str:
    if walk.usable < walk.full:
        where = (
            ""
            if tombstone is None
            else (f": node {tombstone.id}, tokens {tombstone.start} to {tombstone.end - 1}, is a tombstone")
        )
        return (
            f"{walk.usable} of {count} tokens match, although Full alone would reach {walk.full}{where}; "
            f"{missing} more live SWA tokens would be needed before {walk.full}"
        )
    if walk.full < whole:
        return f"{walk.usable} of {count} tokens match: the tree holds nothing further along this prefix"
    rest = count - whole
    tail = f"; the last {rest} do not fill a page" if rest else ""
    return f"{walk.usable} of {count} tokens match: every whole page{tail}"
