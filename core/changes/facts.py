"""Events that tell what was found or decided and leave the tree and the pages alone."""

from kvledger.core.events import (
    CacheOpened,
    CacheReset,
    CallIgnored,
    Checkpoint,
    Event,
    EventsDropped,
    Evicted,
    KvFingerprinted,
    KvUnread,
    PrefixInserted,
    PrefixMatched,
    RolledBack,
)
from kvledger.core.state import CHANGES, REVERSES, CacheState, change


def _nothing(state: CacheState, event: Event) -> None:
    """Leave the state as it is."""


def _nothing_back(state: CacheState, event: Event, token: None) -> None:
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
