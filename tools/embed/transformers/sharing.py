"""`shared_prefixes`: a model whose continuous batching shares prefixes while a `with` block lasts.

Cache, tensors and journal belong to the block, so prefixes outlive a call of `generate_batch`. At its end,
however it comes, the model is as it was before, every request is closed and the journal is on disk.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from os import PathLike
from types import TracebackType
from typing import Any, Literal, Self

from kvledger.core import CacheConfig, HybridCache
from kvledger.core.device_pools import DevicePools
from kvledger.core.errors import InvalidArgument
from kvledger.journal import Journal
from kvledger.journal.durability import Durability
from kvledger.journal.recorder import Recorder
from kvledger.journal.tokens import TokenPolicy
from kvledger.tools.embed.transformers.book import RequestBook
from kvledger.tools.embed.transformers.report import PrefixReport
from kvledger.tools.embed.transformers.seam import Seam, check_free
from kvledger.tools.embed.transformers.sizes import pool_sizes
from kvledger.tools.embed.transformers.support import check_model
from kvledger.tools.engine.hybrid import layout_of_model, window_of
from kvledger.tools.engine.library import require_transformers

DEFAULT_JOURNAL = "kvledger-transformers.db"
"""The database that a block is recorded in unless told otherwise: in the working directory, beside what other
blocks recorded there, each in a journal of its own."""


def shared_prefixes(
    model: Any,
    *,
    full_tokens: int | None = None,
    swa_tokens: int | None = None,
    page_size: int = 16,
    journal: str | PathLike[str] | None = DEFAULT_JOURNAL,
    name: str = "transformers",
    durability: Durability = "step",
    tokens: TokenPolicy = "none",
    token_key: bytes | None = None,
    locked_recovery: Literal["remap", "skip"] = "remap",
    poison: bool = False,
    fingerprints: bool = False,
) -> "SharedPrefixes":
    """Let the continuous batching of a hybrid model share prefixes; use the result in a `with` statement.

    `full_tokens` and `swa_tokens` are the sizes of the pools of its full and sliding layers, whole pages of
    `page_size` tokens; one alone brings the other with it, and without either they
    fill half of a CUDA device's free memory, or 256 MiB elsewhere.
    `page_size` and `num_blocks` of a ContinuousBatchingConfig mean nothing meanwhile.
    `journal` is the URL or path of the database that a new journal `name` is added to, None for no journal;
    `durability`, `tokens` and `token_key` as in `Journal.record`, but no token is kept unless asked for.
    `locked_recovery` as in `CacheConfig`. With `poison` freed KV becomes NaN, which shows in the logits of
    whoever reads it. With `fingerprints` the journal gets checksums of locked KV for its audit to compare,
    and every page is read when it is locked and unlocked.

    Raises UnsupportedSetup for a version of transformers, a model or sizes it does not work with, pydantic's
    ValidationError for sizes that make no cache. Nothing is allocated or written before the block begins.
    """
    require_transformers()
    check_model(model)
    layout = layout_of_model(model)
    window = window_of(model.config.get_text_config())
    full_tokens, swa_tokens = pool_sizes(
        layout,
        device=model.device,
        window=window,
        page_size=page_size,
        full_tokens=full_tokens,
        swa_tokens=swa_tokens,
    )
    config = CacheConfig(
        page_size=page_size,
        sliding_window=window,
        full_tokens=full_tokens,
        swa_tokens=swa_tokens,
        device=str(model.device),
        layout=layout,
        locked_recovery=locked_recovery,
        fingerprints=fingerprints,
    )
    recording = Recording(journal, name, durability, tokens, token_key)
    return SharedPrefixes(model, config, recording, poison=poison)


@dataclass(frozen=True, slots=True)
class Recording:
    """Where and how a block is recorded: the arguments of `shared_prefixes` that say so."""

    target: str | PathLike[str] | None
    name: str
    durability: Durability
    tokens: TokenPolicy
    token_key: bytes | None


class SharedPrefixes:
    """What `shared_prefixes` gives: active between `with` and the end of its block, once."""

    def __init__(self, model: Any, config: CacheConfig, recording: Recording, *, poison: bool) -> None:
        self.config = config
        self._model = model
        self._recording = recording
        self._poison = poison
        self._journal: Journal | None = None
        self._recorder: Recorder | None = None
        self._book: RequestBook | None = None
        self._undo = ExitStack()

    # The block

    def __enter__(self) -> Self:
        if self._book is not None:
            raise InvalidArgument("shared_prefixes is used once: make another for another block")
        check_free(self._model)
        with ExitStack() as undo:
            how = self._recording
            if how.target is not None:
                self._journal = undo.enter_context(Journal.open(how.target))
                recorder = self._journal.record(
                    name=how.name, durability=how.durability, tokens=how.tokens, key=how.token_key
                )
                self._recorder = undo.enter_context(recorder)
            vocabulary = self._model.config.get_text_config().vocab_size
            book = RequestBook(HybridCache(self.config, sink=self._recorder), vocabulary=vocabulary)
            pools: DevicePools = book.cache.pool
            undo.callback(pools.close)
            undo.callback(book.close)
            if self._poison:
                pools.poison()
            flushed = self._recorder if how.durability == "step" else None
            seam = Seam(
                self._model, book, pools, layout=layout_of_model(self._model), flush_each_step=flushed
            )
            undo.callback(seam.take_out)  # first, for an interrupt may come at any point
            seam.put_in()
            self._book = book
            self._undo = undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._undo.__exit__(kind, error, trace)
        failure = self._entered.failure
        if error is None and failure is not None:
            # The scheduler logs what stops its loop and returns what it has: it would pass unseen.
            raise failure

    # What it tells

    @property
    def journal_id(self) -> int | None:
        """The number of the journal, None without one."""
        return None if self._recorder is None else self._recorder.journal_id

    def report(self) -> PrefixReport:
        """What came of it so far; from any thread, during the block and after it."""
        book = self._entered
        with book.asking() as cache:
            stats = cache.stats()
        counts, recorder, journal = book.counts, self._recorder, self._journal
        return PrefixReport(
            requests=counts.requests,
            finished=counts.finished,
            aborted=counts.aborted,
            retractions=counts.retractions,
            prompt_tokens=counts.prompt_tokens,
            prefill_tokens_saved=counts.saved_tokens,
            resumed_tokens_saved=counts.resumed_saved_tokens,
            evicted_full_tokens=stats.evicted_full_tokens,
            evicted_swa_tokens=stats.evicted_swa_tokens,
            tombstones=stats.tombstones,
            recoveries=stats.recoveries,
            recoveries_locked=stats.recoveries_locked,
            anomalies=stats.anomalies,
            journal=self.journal_id,
            database=None if journal is None else journal.name,
            durable_seq=None if recorder is None else recorder.durable_seq,
            stopped=None if book.failure is None else f"{type(book.failure).__name__}: {book.failure}",
        )

    @contextmanager
    def cache(self) -> Iterator[HybridCache]:
        """The cache itself, for questions and for `evict`, from any thread; the scheduler waits meanwhile."""
        with self._entered.asking() as cache:
            yield cache

    def check(self) -> None:
        """Walk the cache and hold the device's mapping to it. InvariantViolation; O(nodes + pages)."""
        with self.cache() as cache:
            cache.check()

    def forget(self) -> None:
        """Drop all that is cached, as after a change of the weights. InvalidArgument while requests run."""
        self._entered.forget()

    @property
    def _entered(self) -> RequestBook:
        if self._book is None:
            raise InvalidArgument(
                "shared_prefixes has to be entered first: with shared_prefixes(...) as ledger"
            )
        return self._book
