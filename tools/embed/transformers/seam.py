"""Where the cache gets into the scheduler of one model, and out again.

What is replaced is one attribute of the model: `init_continuous_batching`, by which every entry of the
scheduler makes its manager. A manager made meanwhile builds its scheduler with our class in place of
its own paged cache. Other models, and the installed package, stay as they are.
"""

from collections.abc import Callable
from threading import Lock
from types import FunctionType
from typing import Any
from weakref import WeakSet

from kvledger.core import KVLayout
from kvledger.core.device_pools import DevicePools
from kvledger.journal.recorder import Recorder
from kvledger.tools.embed.transformers.book import RequestBook
from kvledger.tools.embed.transformers.prompts import RefusedRequest
from kvledger.tools.embed.transformers.support import (
    DEFAULT_BATCH_TOKENS,
    check_attention,
    check_generation,
    chunk_limit,
    plain_batching,
)
from kvledger.tools.engine.library import UnsupportedSetup

_ATTRIBUTE = "init_continuous_batching"

ONE_MANAGER = "one manager at a time shares a model's prefixes: stop the other first"


class Seam:
    """One model's scheduler, around one cache. `flush_each_step`: the recorder to flush after each batch."""

    def __init__(
        self,
        model: Any,
        book: RequestBook,
        pools: DevicePools,
        *,
        layout: KVLayout,
        flush_each_step: Recorder | None,
    ) -> None:
        self._model = model
        self._book = book
        self._pools = pools
        self._layout = layout
        self._recorder = flush_each_step
        self._managers: WeakSet[Any] = WeakSet()  # one that nobody has any more can neither start nor run
        self._serving: Any = None  # the manager whose loop got our cache last
        self._switched: tuple[str, str] | None = None  # attention before and after a manager changed it
        self._claiming = Lock()  # managers are made by any thread, and each loop asks in one of its own

    def put_in(self) -> None:
        """From here on the model's managers share prefixes."""
        setattr(self._model, _ATTRIBUTE, self._init_continuous_batching)

    def take_out(self) -> None:
        """The model is as it was; what still runs is stopped, because its cache ends here.

        Nothing to take out where `put_in` never came to its end.
        """
        vars(self._model).pop(_ATTRIBUTE, None)
        for manager in self._known_managers():
            if manager.is_running():
                manager.stop(block=True, hard_stop=True)
        self._model.destroy_cached_continuous_batching_manager()
        self._switch_back()

    def _init_continuous_batching(
        self,
        generation_config: Any = None,
        continuous_batching_config: Any = None,
        workload_hints: Any = None,
    ) -> Any:
        """What the model's own method does, for a manager around our cache. UnsupportedSetup before it."""
        # Imported here, as below: what is replaced exists in the tested versions only.
        from transformers.generation import ContinuousBatchingConfig

        generation = generation_config or self._model.generation_config
        check_generation(generation)
        check_attention(self._model)
        asked = continuous_batching_config or getattr(generation, "continuous_batching_config", None)
        batching = plain_batching(asked or ContinuousBatchingConfig(), self._model)
        if any(manager.is_running() for manager in self._known_managers()):
            raise UnsupportedSetup(ONE_MANAGER)
        before = self._model.config._attn_implementation
        try:
            manager = getattr(type(self._model), _ATTRIBUTE)(
                self._model,
                generation_config=generation_config,
                continuous_batching_config=batching,
                workload_hints=workload_hints,
            )
        finally:
            now = self._model.config._attn_implementation
            if now != before:
                self._switched = (before, now)
        with self._claiming:
            is_new = manager not in self._managers
            self._managers.add(manager)
        if is_new:
            self._adopt(manager)
        return manager

    def _known_managers(self) -> list[Any]:
        """Those that somebody still has."""
        with self._claiming:
            return list(self._managers)

    def _switch_back(self) -> None:
        """Give the model the attention that it had, where a manager changed it and was never stopped."""
        if self._switched is not None:
            before, switched = self._switched
            if self._model.config._attn_implementation == switched:
                self._model.set_attn_implementation(before)

    def _adopt(self, manager: Any) -> None:
        """Let a manager build its scheduler around our cache.

        Each of its steps then ends with a flush, and a request that could never run fails by itself, in the
        way that the scheduler has for one that it cannot take.
        """
        create = _looking_up(type(manager)._create_batch_processor, PagedAttentionCache=self._paged_cache)

        def create_batch_processor() -> Any:
            self._claim(manager)
            before = manager.batch_processor
            processor = create(manager)
            if processor is not before:
                self._vet_requests(processor.scheduler)
                _admit_after_cancellations(processor.scheduler)
                self._leave_with_the_loop(processor)
                if self._recorder is not None:
                    self._flush_steps(processor, self._recorder.flush)
            return processor

        manager._create_batch_processor = create_batch_processor

    def _vet_requests(self, scheduler: Any) -> None:
        add = scheduler.add_waiting_request

        def vet_and_add(state: Any) -> None:
            if state.request_id in scheduler.waiting_requests:
                raise RefusedRequest(f"request id {state.request_id!r} waits already: ids must differ")
            self._book.vet(state.request_id, state.initial_tokens)
            add(state)

        scheduler.add_waiting_request = vet_and_add

    def _leave_with_the_loop(self, processor: Any) -> None:
        """Whom the scheduler gives up when its loop ends says goodbye, also who waits in its queue then."""
        fail = processor.fail_all_requests

        def fail_and_leave(error: Exception) -> None:
            fail(error)
            self._book.leave_all()

        processor.fail_all_requests = fail_and_leave

    def _flush_steps(self, processor: Any, flush: Callable[[], None]) -> None:
        update = processor.update_batch

        def update_and_flush() -> None:
            update()
            self._book.end_step(flush)

        processor.update_batch = update_and_flush

    def _claim(self, manager: Any) -> None:
        """Let a manager have the cache: before it makes its scheduler, and before each run of its loop.

        UnsupportedSetup where the block is over, another manager runs, or the model is not what it was.
        """
        config = self._book.cache.config
        if not self._pools.k:
            raise UnsupportedSetup("the block that shared prefixes is over: make the manager inside one")
        device, dtype = self._model.device, self._model.dtype
        if str(device) != config.device or str(dtype) != f"torch.{self._layout.dtype}":
            raise UnsupportedSetup(
                f"the model was {self._layout.dtype} on {config.device} when the block began and is "
                f"{dtype} on {device} now"
            )
        with self._claiming:
            if self._serving is not manager and self._serving is not None and self._serving.is_running():
                raise UnsupportedSetup(ONE_MANAGER)
            self._serving = manager

    def _paged_cache(self, *, continuous_batching_config: Any, **_: Any) -> Any:
        """What a manager gets where it asks for its paged cache, by its loop or before it."""
        from kvledger.tools.embed.transformers.paged_cache import LedgerPagedCache

        config = self._book.cache.config
        self._book.leave_all()
        window, swa_tokens = config.sliding_window, config.swa_tokens
        limit = chunk_limit(page_size=config.page_size, window=window, swa_tokens=swa_tokens)
        asked = continuous_batching_config.max_batch_tokens or DEFAULT_BATCH_TOKENS
        return LedgerPagedCache(
            self._book,
            self._pools,
            layout=self._layout,
            window=window,
            batch_tokens=min(asked, limit, config.full_tokens),
        )


def check_free(model: Any) -> None:
    """UnsupportedSetup for a model whose prefixes are shared already, or that keeps a manager of its own."""
    if _ATTRIBUTE in vars(model):
        raise UnsupportedSetup("prefixes of this model are shared already, by another block")
    if getattr(model, "_cached_continuous_batching_manager", None) is not None:
        raise UnsupportedSetup(
            "this model keeps a manager of its own: call destroy_cached_continuous_batching_manager() first"
        )


def _admit_after_cancellations(scheduler: Any) -> None:
    """Let in who waits once all that ran were cancelled.

    After the scheduler took a request back to its queue it lets nobody in until one finishes. Where none
    is left that could, all that wait would do so for ever.
    """
    clear = scheduler.clear_cancelled_requests

    def clear_and_admit() -> Any:
        cancelled = clear()
        if not scheduler.active_requests:
            scheduler.block_new_requests = False
        return cancelled

    scheduler.clear_cancelled_requests = clear_and_admit


def _looking_up(function: Any, **names: Any) -> Any:
    """The same code, which finds these objects where it looks up those global names."""
    found = {**function.__globals__, **names}
    return FunctionType(
        function.__code__, found, function.__name__, function.__defaults__, function.__closure__
    )
