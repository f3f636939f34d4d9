"""The match rule: which prefix of some tokens can be reused. Queries, no event; the last is remembered.

Walking from the root, a prefix is usable where the run of live SWA tokens since the last tombstone is
at least W, or where there was no tombstone at all; it must end on a page. Every tombstone resets
the run. Tokens are compared, as packed bytes with one `memcmp` a node; a hash is never trusted.
"""

from typing import Any

import numpy as np

from kvledger.core.events import Pages
from kvledger.core.free_pages import EMPTY
from kvledger.core.inputs import (
    TOKEN_BYTES,
    PageArithmetic,
    check_namespace,
    key_part,
    num_tokens,
    pack_tokens,
)
from kvledger.core.node import Node
from kvledger.core.results import Explanation, Match
from kvledger.core.row_passes import joined
from kvledger.core.state import CacheState


def common_bytes(key: bytes | bytearray, offset: int, limit: int, edge: bytes, page_bytes: int) -> int:
    """How many bytes of `edge`, in whole pages, equal `key[offset:limit]`. O(length)."""
    n = min(limit - offset, len(edge)) // TOKEN_BYTES
    ours = np.frombuffer(key, dtype=np.int32, count=n, offset=offset)
    theirs = np.frombuffer(edge, dtype=np.int32, count=n)
    differs = ours != theirs
    first = int(differs.argmax())
    same = n if not differs[first] else first
    return same * TOKEN_BYTES // page_bytes * page_bytes


def whole_pages(state: CacheState, key: bytes) -> int:
    """Bytes of a key's whole pages."""
    return len(key) // state.page_bytes * state.page_bytes


def match_prefix(state: CacheState, arithmetic: PageArithmetic, tokens: Any, namespace: Any) -> Match:
    """`HybridCache.match_prefix`, past the check of the thread: what it returns, errors and cost as there."""
    key = pack_tokens(tokens)
    found = walk(state, check_namespace(namespace), key, whole_pages(state, key))
    node = found.path[found.depth - 1].id if found.depth else None
    pages = path_pages(found, state.page_size)
    publish = publish_length(state, found, num_tokens(key))
    return Match(found.length, found.reached, found.reached, publish, node, pages, arithmetic)


class Walk:
    """A descent along some tokens.

    `path`: nodes whose tokens match, the last one perhaps only in part. `reached`: how far Full matches.
    `length`: the longest usable prefix; `depth`: how many nodes of the path it needs; `run`: live tokens
    since the last tombstone where the walk ended. Tokens. `pages`: what `path_pages` found, None before.
    """

    __slots__ = ("depth", "length", "pages", "path", "reached", "run")

    def __init__(self, path: list[Node], *, reached: int, length: int, depth: int, run: int) -> None:
        self.path = path
        self.reached = reached
        self.length = length
        self.depth = depth
        self.run = run
        self.pages: Pages | None = None


class LastWalk:
    """The last walk along immutable tokens, and the shape of the tree that it was made in."""

    __slots__ = ("found", "key", "limit", "namespace", "shape")

    def __init__(self, found: Walk, *, shape: int, namespace: str, key: bytes, limit: int) -> None:
        self.found = found
        self.shape = shape
        self.namespace = namespace
        self.key = key
        self.limit = limit


def walk(state: CacheState, namespace: str, key: bytes | bytearray, limit: int) -> Walk:
    """Follow `key[:limit]` (bytes, whole pages) down the namespace. O(nodes on the path + limit).

    A scheduler asks whether a prompt fits, or what it matches, and then opens it: where nothing about the
    tree that a walk could see has changed in between, the second walk is the first.
    """
    last: LastWalk | None = state.last_walk
    if (
        last is not None
        and last.shape == state.shape
        and (
            limit == last.limit
            or limit == last.found.length * TOKEN_BYTES == last.found.reached * TOKEN_BYTES
        )
        and namespace == last.namespace
        and key == last.key
    ):
        return last.found
    shape = state.shape
    path: list[Node] = []
    node = state.roots.get(namespace)
    page_bytes = state.page_bytes
    window = state.window
    offset = run = length = depth = 0
    tombstoned = False
    while node is not None and offset < limit:
        node = node.children.get(key_part(key, offset, offset + page_bytes))
        if node is None:
            break
        edge = node.key
        size = len(edge)
        if offset + size > limit or not key.startswith(edge, offset):
            size = common_bytes(key, offset, limit, edge, page_bytes)
        path.append(node)
        offset += size
        if node.swa is None:
            run = 0
            tombstoned = True
        else:
            run += size // TOKEN_BYTES
            if not tombstoned or run >= window:
                length = offset // TOKEN_BYTES
                depth = len(path)
        if size != len(edge):
            break
    found = Walk(path, reached=offset // TOKEN_BYTES, length=length, depth=depth, run=run)
    if type(key) is bytes:
        state.last_walk = LastWalk(found, shape=shape, namespace=namespace, key=key, limit=limit)
    return found


def path_pages(found: Walk, page_size: int) -> Pages:
    """Full pages of the usable prefix: int32[length / page size], read-only.

    For a walk in the shape that the tree has now. They are joined once: O(pages), and then O(1).
    """
    pages = found.pages
    if pages is None:
        found.pages = pages = _joined(found, found.length // page_size)
    return pages


def _joined(found: Walk, pages: int) -> Pages:
    """The first `pages` Full pages of a path, as far as it is usable."""
    if not found.depth:
        return EMPTY
    full = found.path[0].full
    if found.depth > 1:
        full = joined([node.full for node in found.path[: found.depth]])
        full.setflags(write=False)
    return full if len(full) == pages else full[:pages]


def publish_length(state: CacheState, found: Walk, tokens: int) -> int:
    """Where a row of `tokens` tokens is worth publishing first, so that later ones take it up there.

    With eviction "lru" the branch point; with "lru-2" also where such a row is likely to be left. O(margin).
    """
    if state.retention is None:
        return found.reached
    last = found.path[-1] if found.path else None
    return state.retention.publish_length(
        length=found.length, reached=found.reached, last=last, tokens=tokens
    )


def explain(found: Walk, state: CacheState, tokens: int) -> Explanation:
    """Tell why a walk along `tokens` tokens found no longer prefix."""
    tombstone = next((n for n in found.path if n.swa is None and n.end > found.length), None)
    whole = tokens // state.page_size * state.page_size
    if found.length < found.reached:
        reason = "dead_window"
    elif found.reached < whole:
        reason = "no_full"
    else:
        reason = "whole"
    return Explanation(
        tokens=tokens,
        length=found.length,
        full_length=found.reached,
        branch_length=found.reached,
        reason=reason,
        first_tombstone=None if tombstone is None else (tombstone.id, tombstone.start, tombstone.end),
        live_tokens=found.run,
        missing_tokens=max(0, state.window - found.run) if found.length < found.reached else 0,
    )


def taken_by_lock(found: Walk, state: CacheState) -> tuple[int, int]:
    """Evictable tokens (full, swa) that locking the usable prefix would pin. O(nodes on the path)."""
    full = swa = 0
    swa_from = max(0, found.length - state.window_tokens)
    for node in found.path[: found.depth]:
        end = min(node.end, found.length)
        if not node.full_lock:
            full += end - node.start
        if not node.swa_lock and node.swa is not None and end > swa_from:
            swa += end - max(node.start, swa_from)
    return full, swa


def live_run(node: Node | None, window: int) -> tuple[int, bool]:
    """Run of live tokens that ends with `node`, and whether a tombstone cut it: at most W tokens up."""
    run = 0
    while node is not None and node.parent is not None:
        if node.swa is None:
            return run, True
        run += node.end - node.start
        if run >= window:
            return run, True
        node = node.parent
    return run, False
