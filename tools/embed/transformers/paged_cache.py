"""The paged cache as the scheduler of `transformers` sees it, over a `RequestBook` and its pools.

It stands in the place of the scheduler's own class, and answers every call that the scheduler makes in
the tested versions. Nothing of the class it derives from runs: being of that class is what counts,
where masks are chosen. Blocks are pages here, and what the scheduler keeps apart as "cached blocks" counts as
free, because the cache evicts by itself when it needs room.

A sliding layer keeps a slot for every token of the window, and none is overwritten: it reads the window
before the batch's first token and then the batch's own, in order, as a full layer does.
"""

from typing import Any, NoReturn

import numpy as np
import torch
from transformers.generation.continuous_batching.cache import PagedAttentionCache
from transformers.generation.continuous_batching.requests import RequestState, RequestStatus

from kvledger.core import KVLayout
from kvledger.core.device_pools import DevicePools
from kvledger.core.errors import InvariantViolation
from kvledger.tools.embed.transformers.book import RequestBook
from kvledger.tools.engine.hybrid import FULL, SLIDING
from kvledger.tools.engine.library import UnsupportedSetup

PADDING_SLOT = 0
"""Where an index that names no token points: into page 0, which nobody owns."""


class LayerGroup:
    """What the scheduler asks of layers of one kind. `window` is how far back they look, None for all."""

    read_trash_index = PADDING_SLOT
    write_trash_index = PADDING_SLOT

    def __init__(self, book: RequestBook, *, index: int, layer_type: str, window: int | None) -> None:
        self.index = index
        self.layer_type = layer_type
        self.window = window
        self.block_table: dict[str, list[int]] = {}  # what would be copied to the host if that were supported
        self._book = book

    def get_seqlen_k(self, past_length: int, query_length: int) -> int:
        """How many tokens a batch's tokens of one request read, themselves included."""
        return query_length + (past_length if self.window is None else min(past_length, self.window))

    def needs_new_blocks(self, request_id: str, past_length: int, query_length: int) -> int:
        """Pages that a request lacks for its next tokens."""
        return self._book.pages_missing(request_id, end=past_length + query_length)


class EvictedOnDemand:
    """The scheduler's pool of free sectors: there is none to tidy up, pages come and go by themselves."""

    def try_to_free_sectors(self) -> None:
        """Nothing to do."""


class LedgerPagedCache(PagedAttentionCache):
    """One scheduler's view of the shared cache: made for each run of the scheduler, closed by none."""

    def __init__(
        self, book: RequestBook, pools: DevicePools, *, layout: KVLayout, window: int, batch_tokens: int
    ) -> None:
        config = book.cache.config
        self._book = book
        self._pools = pools
        self._window = window
        self.device = torch.device(config.device)
        self.pool: Any = EvictedOnDemand()
        groups = (
            LayerGroup(book, index=0, layer_type=FULL, window=None),
            LayerGroup(book, index=1, layer_type=SLIDING, window=window),
        )
        self.cache_allocators: dict[str, Any] = {group.layer_type: group for group in groups}
        self._group_of = dict.fromkeys(layout.full_layers, groups[0]) | dict.fromkeys(
            layout.swa_layers, groups[1]
        )
        # Sizes that the scheduler plans with.
        self.max_batch_tokens = batch_tokens
        self.max_tokens_read = config.full_tokens
        self.read_cache_limit = None
        self.num_blocks = config.full_pages
        self.bytes_per_sector = sum(
            tensor[: config.page_size].nbytes for tensor in (*pools.k.values(), *pools.v.values())
        )
        # What it may and may not do.
        self.use_prefix_sharing = True
        self.allow_block_sharing = True
        self.max_blocks_per_request = 0
        self.max_decode_fast_path_length = 0

    # Room

    def compute_free_capacity(self, relative: bool = True) -> int | float:
        """What is free or may be evicted, in the scarcer pool: a fraction, or bytes."""
        config = self._book.cache.config
        full, swa = self._book.room()
        part = min(full / config.full_pages, swa / config.swa_pages)
        return part if relative else int(part * config.full_pages * self.bytes_per_sector)

    def evict_cached_blocks(self) -> bool:
        """Never frees anything: what could be evicted counts as free already."""
        return False

    def can_store_request_tokens(self, state: RequestState, request_len: int, dry_run: bool = False) -> bool:
        """Give a request slots for its next tokens; False, and nothing has changed, without room for them."""
        start = state.current_len()
        if dry_run:
            missing = self._book.pages_missing(state.request_id, end=start + request_len)
            return missing <= min(self._book.room())
        return self._book.reserve(
            state.request_id, state.remaining_prefill_tokens, start=start, end=start + request_len
        )

    def count_storable_requests(self, list_blocks_needed: list[dict[str, int]]) -> int:
        """How many requests, taken in order, could be given the pages they lack."""
        full, swa = self._book.room()
        for storable, needed in enumerate(list_blocks_needed):
            full -= needed[FULL]
            swa -= needed[SLIDING]
            if full < 0 or swa < 0:
                return storable
        return len(list_blocks_needed)

    # Prefixes

    def search_prefix_match(self, request_id: str, prompt_ids: list[int]) -> int:
        """Lock the longest reusable prefix of a prompt that waits; how many tokens it has."""
        return self._book.match(request_id, prompt_ids, chunk=self.max_batch_tokens)

    def count_new_complete_blocks(self, state: RequestState, request_len: int) -> dict[str, int]:
        """Nothing to remember: the cache knows which pages a batch completes."""
        return {}

    def mark_complete_blocks(self, state: RequestState, complete_blocks: dict[str, int]) -> None:
        """A batch ran: the KV of all but the sampled token is there."""
        self._book.ran(
            state.request_id,
            upto=state.position_offset,
            prefilled=len(state.initial_tokens),
            generated=state.generated_tokens,
            finished=state.status == RequestStatus.FINISHED,
        )

    # Goodbye

    def free_blocks(self, request_id: str, no_cache: bool = False) -> None:
        """A request ended, was cancelled or failed; with `no_cache` it goes back to the queue."""
        if no_cache:
            self._book.retract(request_id)
        else:
            self._book.leave(request_id)

    def free_all_requests(self, clear_ledgers: bool = False) -> None:
        """Every request ended. What is cached stays."""
        self._book.leave_all()

    def reset(self) -> None:
        """Every request ended."""
        self._book.leave_all()

    # A batch

    def extend_read_and_write_indices(
        self,
        request_id: str,
        past_length: int,
        query_length: int,
        read_index: list[list[int]] | None,
        write_index: list[list[int]],
    ) -> None:
        """Add a request's slots to those that a batch reads and writes, per group of layers."""
        near = max(0, past_length - self._window)
        full, swa = self._book.slots(request_id, end=past_length + query_length, swa_from=near)
        if not swa.all():
            token = near + int(np.flatnonzero(swa == 0)[0])
            sentence = f"request {request_id!r} would read token {token}: its SWA is gone"
            raise InvariantViolation([("row-safety", sentence)])
        for index, (used, first) in enumerate(((full, 0), (swa, near))):
            write_index[index].extend(used[past_length - first :].tolist())
            if read_index is not None:
                read_index[index].extend(used.tolist())
        if self._pools.device.type == "cuda":
            # The scheduler computes on a stream of its own, which waits for nothing that is done on this one.
            torch.cuda.current_stream(self._pools.device).synchronize()

    @torch.compiler.disable
    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, kwargs: dict[str, Any]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write a batch's new KV of one layer, and return all that its tokens read.

        `key_states` and `value_states`: [1, kv_heads, tokens, head_dim]. What of `kwargs` differs between
        groups becomes that of the layer's own.
        """
        group = self._group_of[layer_idx]
        kwargs["cu_seq_lens_k"] = kwargs["cu_seq_lens_k"][group.layer_type].to(torch.int32)
        kwargs["max_length_k"] = kwargs["max_length_k"][group.layer_type]
        read, write = kwargs["read_index"][group.index], kwargs["write_index"][group.index]
        told = []
        for stored, new in ((self._pools.k, key_states), (self._pools.v, value_states)):
            stored[layer_idx].index_copy_(0, write, new.squeeze(0).transpose(0, 1))
            # No index means that no request of the batch has a past: what is new is all there is to read.
            told.append(new if not read.numel() else stored[layer_idx][read].transpose(0, 1).unsqueeze(0))
        return told[0], told[1]

    # What was refused before a scheduler was made

    def fill_block_table(
        self, request_id: str, past_length: int, query_length: int, block_table: torch.Tensor
    ) -> NoReturn:
        """Not supported."""
        raise UnsupportedSetup("prefixes are not shared with block tables")

    def prepare_fork_request(
        self, src_state: RequestState, dst_req_ids: list[str], copy_src_and_dst: dict[str, Any]
    ) -> NoReturn:
        """Not supported."""
        raise UnsupportedSetup("prefixes are not shared with forked requests")

    def perform_cache_copy(self, copy_src_and_dst: dict[str, Any]) -> NoReturn:
        """Not supported."""
        raise UnsupportedSetup("prefixes are not shared with forked requests")
