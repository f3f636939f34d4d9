"""Events that tell what was found or decided and leave the tree and the pages alone."""

from typing import Any

from kvledger.core.events import (
    CacheOpened,
    CacheReset,
    CallIgnored,
    Checkpoint,
    EventsDropped,
    Evicted,
    KvFingerprinted,
    KvUnread,
    PrefixInserted,
    PrefixMatched,
    RolledBack,
)
from kvledger.core.state import CHANGES, REVERSES, CacheState, change


def _nothing(state: CacheState, event: Any) -> None:
    """Leave the state as it is."""


def _nothing_back(state: CacheState, event: Any, token: None) -> None:
    """Leave the state as it is."""


for _kind in (
    CacheOpened,
    PrefixInserted,
    PrefixMatched,
    Evicted,
    RolledBack,
    Checkpoint,
    CallIgnored,
    KvFingerprinted,
    KvUnread,
    EventsDropped,
):
    CHANGES[_kind] = _nothing
    REVERSES[_kind] = _nothing_back


def _reset_back(state: CacheState, event: CacheReset, token: int) -> None:
    state.generation = token


@change(CacheReset, _reset_back)
def _reset(state: CacheState, event: CacheReset) -> int:
    before = state.generation
    state.generation = event.generation
    state.last_walk = None
    return before
