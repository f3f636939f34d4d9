"""The tree and its nodes. Rows: every leaf has one, a node spans those of the leaves below it."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from kvledger.api.schemas.common import (
    JSON_SEQ_MAX,
    WHOLE,
    WHOLE_EACH,
    Answer,
    At,
    OriginOut,
    Runs,
    Tokens,
)
from kvledger.api.schemas.events import EventOut

TOKENS_MAX = 1_000_000
"""Tokens of a prefix to explain: more than any context holds; the size of a request bounds it first."""

Token = Annotated[int, Field(ge=-(2**31), le=2**31 - 1)]


class NodeBrief(Answer):
    """A node as the tree shows it: tokens [start, end) below its parent, rows [row, row + rows).

    `locked_full` is full_lock > 0 and so on only by the counts; `mixed`: its Full and SWA are of different
    forwards; `evictable_full`, `evictable_swa`: eviction could take that side of it now.
    `rows_hidden` and `nodes_below` make a cut answer recognisable: rows below it that are not in this answer,
    and how many nodes there are below it in all.
    """

    id: int
    parent: int | None
    namespace: str
    depth: int
    start: int
    end: int
    row: int
    rows: int
    full_lock: int
    swa_lock: int
    tombstone: bool
    mixed: bool
    evictable_full: bool
    evictable_swa: bool
    children: int
    nodes_below: int
    rows_hidden: int


class TreeOut(Answer):
    """The nodes that lie in the rows asked for, parents before children.

    Totals are of the whole tree (of the namespace, or below the node, that was asked for), so that a part is
    recognisable: `truncated` says that nodes in these rows were left out, because of `depth` or `limit`.
    """

    at: At
    first_row: int
    rows: int
    rows_total: int
    nodes_total: int
    tokens_total: int
    end_max: Annotated[int, Field(description="Largest `end`, in tokens: the width of the whole picture.")]
    truncated: bool
    namespaces: tuple[str, ...]
    namespaces_total: int
    namespace_found: Annotated[
        bool | None, Field(description="Whether the namespace asked for is there; None where none was.")
    ] = None
    sentence: Annotated[str | None, Field(description="Why nothing is shown, where that is to be told.")] = (
        None
    )
    nodes: tuple[NodeBrief, ...]


class HolderOut(Answer):
    """Who locks a node: the lease, its request, and since when.

    The lock reaches Full [0, length) and SWA [swa_from, length), the latter while `swa_held`. `since_seq` is
    None where the event was pruned or the lock is older than what is stored.
    """

    lease: int
    request: str | None
    node: int | None
    length: int
    swa_from: int
    swa_held: bool
    since_seq: int | None
    since_us: int | None
    transaction: int | None


class NodeOut(Answer):
    """All about one node at one seq. Slots are runs of slot numbers in token order.

    `holders` lists the leases whose locked path has the node, the first of them, of `holders_total`.
    `provenance` holds the events that brought its Full and its SWA pages, through splits, oldest first.
    """

    at: At
    node: NodeBrief
    path: Annotated[tuple[int, ...], Field(description="Node ids from the root side down to the node.")]
    child_ids: tuple[int, ...]
    tokens: Tokens
    full_slots: Runs
    swa_slots: Runs | None
    full_pages: Runs
    swa_pages: Runs | None
    full_origin: OriginOut
    swa_origin: OriginOut | None
    stamp: int
    holders: tuple[HolderOut, ...]
    holders_total: int
    provenance: tuple[EventOut, ...]


class Change(Answer):
    """One field with another value afterwards."""

    field: str
    before: str
    after: str


class Changed(Answer):
    """One node, request or lease that is there before and after with other values."""

    id: str
    changes: tuple[Change, ...]


class Differences(Answer):
    """What came, went and changed, each list bounded; the totals are not."""

    added: tuple[str, ...]
    added_total: int
    removed: tuple[str, ...]
    removed_total: int
    changed: tuple[Changed, ...]
    changed_total: int


class DiffOut(Answer):
    """What differs between two states of a journal. `pools` names pages of a place, as in "full.free"."""

    before: At
    after: At
    nodes: Differences
    requests: Differences
    leases: Differences
    pools: tuple[Change, ...]


class ExplainRequest(BaseModel):
    """A prefix to explain: token ids, the namespace as this service tells it, the seq (None: the newest)."""

    model_config = ConfigDict(extra="forbid")

    tokens: Annotated[list[Token], WHOLE_EACH, Field(max_length=TOKENS_MAX, examples=[[1, 2, 3, 4]])]
    namespace: Annotated[str, Field(max_length=1_024)] = ""
    at: Annotated[int | None, Field(ge=0, le=JSON_SEQ_MAX), WHOLE] = None


class ExplanationOut(Answer):
    """Why the match of a prefix is not longer, in tokens.

    Full alone would reach `full_length`; the match ends at `length`. `first_tombstone` is where the first
    tombstone on the path begins that ends past the match, `deciding_tombstone` where the last one begins that
    cuts off the live SWA before `full_length`: as long as it stands, to revive one before it does not let the
    match reach so far. `live_missing` is how many more live SWA tokens before `full_length` it would take.
    `namespace_found` is false where the tree has no such namespace. `sentence` says it all for a person;
    `path` are the nodes that the prefix walks through.
    """

    at: At
    length: int
    full_length: int
    branch_length: int
    node: int | None
    first_tombstone: int | None
    deciding_tombstone: int | None = None
    live_missing: int
    namespace_found: bool = True
    sentence: str
    path: tuple[int, ...]
