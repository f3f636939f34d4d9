"""Where the cache gets into the scheduler of one model, and out again.

What is replaced is one attribute of the model: `init_continuous_batching`, by which every entry of the
scheduler makes its manager. A manager made meanwhile builds its scheduler with our class in place of
its own paged cache. Other models, and the installed package, stay as they are.
"""

from types import FunctionType
from typing import Any

from kvledger.core import KVLayout
from kvledger.journal.recorder import Recorder
from kvledger.tools.embed.transformers.book import RequestBook
from kvledger.tools.embed.transformers.memory import PagedMemory
from kvledger.tools.embed.transformers.support import (
    DEFAULT_BATCH_TOKENS,
    UnsupportedSetup,
    check_generation,
    chunk_limit,
    plain_batching,
)

_ATTRIBUTE = "init_continuous_batching"


class Seam:
    """One model's scheduler, around one cache. `flush_each_step`: the recorder to flush after each batch."""

    def __init__(
        self,
        model: Any,
        book: RequestBook,
        memory: PagedMemory,
        *,
        layout: KVLayout,
        flush_each_step: Recorder | None,
    ) -> None:
        self._model = model
        self._book = book
        self._memory = memory
        self._layout = layout
        self._recorder = flush_each_step
        self._managers: list[Any] = []

    def put_in(self) -> None:
        """From here on the model's managers share prefixes."""
        setattr(self._model, _ATTRIBUTE, self._init_continuous_batching)

    def take_out(self) -> None:
        """The model is as it was; what still runs is stopped, because its cache ends here."""
        delattr(self._model, _ATTRIBUTE)
        for manager in self._managers:
            if manager.is_running():
                manager.stop(block=True, hard_stop=True)
        self._model.destroy_cached_continuous_batching_manager()

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
        asked = continuous_batching_config or getattr(generation, "continuous_batching_config", None)
        batching = plain_batching(asked or ContinuousBatchingConfig(), self._model)
        if any(manager.is_running() for manager in self._managers):
            raise UnsupportedSetup("one manager at a time shares a model's prefixes: stop the other first")
        manager = getattr(type(self._model), _ATTRIBUTE)(
            self._model,
            generation_config=generation_config,
            continuous_batching_config=batching,
            workload_hints=workload_hints,
        )
        if manager not in self._managers:
            self._managers.append(manager)
            self._adopt(manager)
        return manager

    def _adopt(self, manager: Any) -> None:
        """Let a manager build its scheduler around our cache, and end each of its steps with a flush."""
        create = _looking_up(type(manager)._create_batch_processor, PagedAttentionCache=self._paged_cache)

        def create_batch_processor() -> Any:
            before = manager.batch_processor
            processor = create(manager)
            if processor is not before and self._recorder is not None:
                update, flush = processor.update_batch, self._recorder.flush

                def update_and_flush() -> None:
                    update()
                    self._book.end_step(flush)

                processor.update_batch = update_and_flush
            return processor

        manager._create_batch_processor = create_batch_processor

    def _paged_cache(self, *, continuous_batching_config: Any, device: Any, dtype: Any, **_: Any) -> Any:
        """What a manager gets where it asks for its paged cache."""
        from kvledger.tools.embed.transformers.paged_cache import LedgerPagedCache

        config = self._book.cache.config
        if not self._memory.k:
            raise UnsupportedSetup("the block that shared prefixes is over: make the manager inside one")
        if str(device) != config.device or str(dtype) != f"torch.{self._layout.dtype}":
            raise UnsupportedSetup(
                f"the model was {self._layout.dtype} on {config.device} when the block began and is "
                f"{dtype} on {device} now"
            )
        self._book.leave_all()
        window, swa_tokens = config.sliding_window, config.swa_tokens
        limit = chunk_limit(page_size=config.page_size, window=window, swa_tokens=swa_tokens)
        asked = continuous_batching_config.max_batch_tokens or DEFAULT_BATCH_TOKENS
        return LedgerPagedCache(
            self._book,
            self._memory,
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


def _looking_up(function: Any, **names: Any) -> Any:
    """The same code, which finds these objects where it looks up those global names."""
    found = {**function.__globals__, **names}
    return FunctionType(
        function.__code__, found, function.__name__, function.__defaults__, function.__closure__
    )
