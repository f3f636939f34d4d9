"""What `kvledger show` and `replay` print: documents about a store, or about one moment of a journal.

Lengths and positions are tokens, pages are page numbers, slots are Full slots.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from kvledger.tools.documents.locks import HolderDocument


class Picture(BaseModel):
    """What all documents share: `seq` is the transaction boundary they show."""

    model_config = ConfigDict(frozen=True)

    seq: int


class JournalPicture(BaseModel):
    """One journal; `created` is UTC. `first_seq` is above 1 where older events were pruned."""

    model_config = ConfigDict(frozen=True)

    journal: int
    name: str
    epoch: str
    created: str
    first_seq: int
    last_seq: int


class StorePicture(BaseModel):
    """All journals of a store or a folder, oldest first."""

    model_config = ConfigDict(frozen=True)

    journals: list[JournalPicture]


class PoolPicture(BaseModel):
    """Tokens of one pool by where they are."""

    total: int
    free: int
    tree: int
    held: int


class StatePicture(Picture):
    """A journal's state in figures; `digest` is that of the canonical state.

    `events` were folded, those after the checkpoint at `checkpoint_seq` if there was one.
    """

    transaction: int
    checkpoint_seq: int | None
    events: int
    undone_events: int
    digest: str
    generation: int
    page_size: int
    window: int
    nodes: int
    tombstones: int
    mixed_nodes: int
    leases: int
    requests: int
    full: PoolPicture
    swa: PoolPicture


class NodePicture(Picture):
    """One node; `depth` counts from 0 under its namespace."""

    node: int
    parent: int | None
    children: tuple[int, ...]
    namespace: str
    depth: int
    start: int
    end: int
    tombstone: bool
    full_lock: int
    swa_lock: int
    stamp: int
    full_origin: str
    swa_origin: str | None
    full_pages: list[int]
    swa_pages: list[int] | None


class LockedNodePicture(NodePicture):
    """One node with the leases that lock it, oldest first: the first of `holders_total`."""

    holders: list[HolderDocument]
    holders_total: int


class TreePicture(Picture):
    """All nodes, parents before children."""

    nodes: list[NodePicture]


class SlotPicture(Picture):
    """Where one Full slot is: `place` says which of the other fields apply.

    `position` is that of the token in the slot, `beside` the SWA slot that stands beside it.
    """

    slot: int
    page: int
    offset: int
    place: Literal["free", "deferred", "tree", "request", "caller"]
    beside: int | None
    node: int | None
    request: str | None
    position: int | None
    read_by: list[str]


class RequestPicture(Picture):
    """An open request: positions [0, protected) lie on its locked path, the rest of the row is its own.

    `locked_since_seq` and `locked_since` (UTC) are when its lease was given: None where that is not stored.
    """

    request: str
    namespace: str
    epoch: int
    waiting: bool
    lease: int | None
    node: int | None
    protected: int
    swa_from: int | None
    locked_since_seq: int | None
    locked_since: str | None
    row_tokens: int
    row_pages: list[int]


class OpenRequests(Picture):
    """All requests that are open, by id."""

    requests: list[RequestPicture]


class ExportPicture(Picture):
    """What an export wrote: `seq` and `hash` are where the folder ends now; no file where nothing was new."""

    journal: int
    file: str | None
    transactions: int
    events: int
    hash: str


class PrunePicture(Picture):
    """What left the database: `seq` is the checkpoint at which the journal begins there now."""

    journal: int
    transactions: int
    events: int
