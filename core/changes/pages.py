"""Changes of held pages: allocation, frees, and mapping entries set apart from both."""

import numpy as np

from kvledger.core.events import MappingSet, PagesAllocated, PagesFreed, Pool
from kvledger.core.page_table import CALLER
from kvledger.core.row_passes import all_set
from kvledger.core.state import CacheState, change


def _allocated_back(state: CacheState, event: PagesAllocated, token: int) -> None:
    state.pages.unhold(event.full_pages, event.swa_pages)
    if event.owner is not None and event.row_start is not None:
        state.requests[event.owner].row_pages = token


@change(PagesAllocated, _allocated_back)
def _allocated(state: CacheState, event: PagesAllocated) -> int:
    full = event.full_pages
    if event.owner is None or event.row_start is None:
        state.pages.hold(full, event.swa_pages, CALLER)
        return 0
    request = state.requests[event.owner]
    before = request.row_pages
    state.pages.hold(full, event.swa_pages, request.ordinal)
    request.write_row(event.row_start, full)
    request.row_pages = event.row_start + len(full)
    return before


def _freed_back(state: CacheState, event: PagesFreed, token: int) -> None:
    full, swa = event.full_pages, event.swa_pages
    if event.pool is Pool.SWA:
        state.pages.unfree_swa_pages(full, swa, from_tree=False, reusable=False)
        return
    if event.pool is Pool.BOTH:
        with_peer = swa != 0
        state.pages.unfree_swa_pages(full[with_peer], swa[with_peer], from_tree=False, reusable=False)
    state.pages.unfree_full_pages(full, from_tree=False, reusable=False, owner=token)


@change(PagesFreed, _freed_back)
def _freed(state: CacheState, event: PagesFreed) -> int:
    full, swa = event.full_pages, event.swa_pages
    if event.pool is Pool.SWA:
        state.pages.free_swa_pages(full, swa, from_tree=False, reusable=False)
        return 0
    owner = state.pages.free_full_pages(full, from_tree=False, reusable=False)
    if event.pool is Pool.BOTH:
        if all_set(swa):
            state.pages.free_swa_pages(full, swa, from_tree=False, reusable=False)
        else:
            with_peer = swa != 0
            state.pages.free_swa_pages(full[with_peer], swa[with_peer], from_tree=False, reusable=False)
    return owner


def _mapped_back(state: CacheState, event: MappingSet, token: np.ndarray) -> None:
    state.pages.mapping[event.full_pages] = token
    state.pages.rewrote = True


@change(MappingSet, _mapped_back)
def _mapped(state: CacheState, event: MappingSet) -> np.ndarray:
    before = state.pages.mapping[event.full_pages]
    state.pages.mapping[event.full_pages] = event.swa_pages
    state.pages.wrote_mapping(event.full_pages, event.swa_pages)
    return before
