"""What goes wrong around the embedded cache: a window off by one, a failing batch, a journal that refuses."""

from pathlib import Path
from typing import Any

import pytest

from kvledger.core.device_pools import DevicePools
from kvledger.core.errors import (
    DoubleFree,
    ForeignSlots,
    InvalidArgument,
    InvariantViolation,
    JournalError,
    MissingSwa,
    StoreUnavailable,
    TransactionError,
    UnalignedLength,
)
from kvledger.core.requests import Request
from kvledger.core.sinks import TransactionRecord
from kvledger.journal import Journal
from kvledger.journal.recorder import Recorder
from kvledger.tools.audit.judge import judge
from kvledger.tools.embed.transformers import SharedPrefixes, shared_prefixes
from kvledger.tools.embed.transformers.paged_cache import LedgerPagedCache
from kvledger.tools.embed.transformers.sharing import Recording
from tests.support.batching import ALONE, TOLERANCE, furthest, prompts_with_heads, run_batching, tiny_model

SLIDING_WINDOW = 18


def served(ledger: SharedPrefixes, model: Any) -> float:
    """The largest difference to a run alone, of prompts whose heads are read from the cache."""
    prompts = prompts_with_heads(heads=[44, 30], tails=[6, 9], copies=4)
    with ledger:
        shared = run_batching(model, prompts)
        assert ledger.report().prefill_tokens_saved > 0
    assert not shared.errors
    return furthest(shared, run_batching(model, prompts, **ALONE))


def test_a_window_one_token_short_moves_the_logits() -> None:
    model = tiny_model("gemma3", SLIDING_WINDOW)
    right = shared_prefixes(model, page_size=4, full_tokens=512, swa_tokens=256, poison=True, journal=None)
    short = right.config.model_copy(update={"sliding_window": SLIDING_WINDOW - 2})
    wrong = SharedPrefixes(model, short, Recording(None, "", "step", "none", None), poison=True)
    assert served(right, model) <= TOLERANCE
    assert served(wrong, model) > 100 * TOLERANCE


def test_a_read_behind_the_window_that_is_kept_stops_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("gemma3", SLIDING_WINDOW)
    first, second = prompts_with_heads(heads=[24], tails=[1, 8], copies=2)
    made = LedgerPagedCache.__init__

    def wider(self: LedgerPagedCache, *args: Any, window: int, **kwargs: Any) -> None:
        made(self, *args, window=window + 4, **kwargs)

    monkeypatch.setattr(LedgerPagedCache, "__init__", wider)
    with shared_prefixes(
        model, page_size=4, full_tokens=256, swa_tokens=128, poison=True, journal=None
    ) as ledger:
        run_batching(model, [first], new_tokens=1)
        with ledger.cache() as cache:
            cache.evict(swa_tokens=cache.sizes().swa.evictable - 20)
        run = run_batching(model, [second])
        ledger.check()
    assert "[row-safety]" in run.errors["req_0"]
    assert "would read token 3: its SWA is gone" in run.errors["req_0"]


def test_an_error_in_the_middle_of_a_batch_leaves_a_sound_cache_and_a_journal_that_passes(
    tmp_path: Path,
) -> None:
    model = tiny_model("gemma3", SLIDING_WINDOW)
    prompts = prompts_with_heads(heads=[24, 60], tails=[5, 11], copies=4)

    def fail_at(batch: int) -> None:
        if batch == 7:
            raise ArithmeticError("the device is gone")

    with shared_prefixes(
        model, page_size=4, full_tokens=256, swa_tokens=128, journal=tmp_path / "run.db", poison=True
    ) as ledger:
        failed = run_batching(model, prompts, at_batch=fail_at)
        assert set(failed.errors.values()) == {"the device is gone"}
        assert ledger.report().aborted > 0
        with ledger.cache() as cache:
            assert cache.sizes().full.held == cache.sizes().full.protected == 0
        ledger.check()
        again = run_batching(model, prompts)
    assert not again.errors
    assert furthest(again, run_batching(model, prompts, **ALONE)) <= TOLERANCE
    assert passes(tmp_path / "run.db")


def test_an_error_in_the_block_puts_the_model_back_and_closes_the_journal(tmp_path: Path) -> None:
    model = tiny_model("gemma3", SLIDING_WINDOW)
    sizes: dict[str, Any] = {"page_size": 4, "full_tokens": 256, "swa_tokens": 128}
    ledger = shared_prefixes(model, **sizes, journal=tmp_path / "run.db")

    def served() -> None:
        with ledger:
            run_batching(model, [[1, 2, 3]])
            raise ArithmeticError

    with pytest.raises(ArithmeticError):
        served()
    assert "init_continuous_batching" not in vars(model)
    assert ledger.report().stopped is None
    assert passes(tmp_path / "run.db")
    with shared_prefixes(model, **sizes, journal=None):
        assert not run_batching(model, [[1, 2, 3]]).errors


@pytest.mark.parametrize("refused", [2, 9, 17, 26])
def test_a_journal_that_refuses_stops_the_scheduler_and_is_heard_of(
    refused: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_model("gemma3", SLIDING_WINDOW)
    prompts = prompts_with_heads(heads=[24], tails=[5, 11], copies=4)
    append, appended = Recorder.append, 0

    def failing(self: Recorder, transaction: TransactionRecord) -> None:
        nonlocal appended
        appended += 1
        if appended >= refused:
            raise StoreUnavailable("the disk is full")
        append(self, transaction)

    monkeypatch.setattr(Recorder, "append", failing)
    ledger = shared_prefixes(model, page_size=4, full_tokens=256, swa_tokens=128, journal=tmp_path / "run.db")

    def served() -> None:
        with ledger:
            run = run_batching(model, prompts)
            assert "the disk is full" in (ledger.report().stopped or "")
            assert len(run.tokens) == len(prompts), "a request was left without an answer"
            assert set(run_batching(model, prompts).errors.values()) == {"the disk is full"}

    with pytest.raises(JournalError, match="the disk is full"):
        served()
    assert "init_continuous_batching" not in vars(model)
    assert passes(tmp_path / "run.db")


def test_a_device_that_maps_otherwise_than_the_cache_is_found() -> None:
    model = tiny_model("gemma3", SLIDING_WINDOW)
    with shared_prefixes(model, page_size=4, full_tokens=256, swa_tokens=128, journal=None) as ledger:
        run_batching(model, [[1, 2, 3, 4, 5]])
        ledger.check()
        with ledger.cache() as cache:
            cache.pool.mapping[1] += 1
        with pytest.raises(InvariantViolation, match="the device maps Full page 1 otherwise"):
            ledger.check()


def test_an_id_that_is_in_use_is_refused_and_nobody_reads_a_strangers_kv() -> None:
    model = tiny_model("gemma3", SLIDING_WINDOW)
    with shared_prefixes(model, page_size=4, full_tokens=256, swa_tokens=128, journal=None) as ledger:
        book = ledger._entered
        assert not book.reserve("twice", [1, 2, 3], start=0, end=3), "nobody asked what it can reuse"
        assert book.match("twice", [1, 2, 3], chunk=8) == 0
        assert book.reserve("twice", [1, 2, 3], start=0, end=3)
        with pytest.raises(InvalidArgument, match="in use"):
            book.match("twice", [1, 2, 3, 4], chunk=8)
        book.retract("twice")
        book.leave("twice")  # what the scheduler says after it took a request back
        with pytest.raises(InvalidArgument, match="other tokens"):
            book.match("twice", [1, 2, 9], chunk=8)
        assert book.match("twice", [1, 2, 3], chunk=8) == 0
        assert book.reserve("twice", [1, 2, 3], start=0, end=3)
        with pytest.raises(InvalidArgument, match="1 requests still need"):
            ledger.forget()
        book.leave("twice")
        ledger.forget()


def test_tokens_that_are_none_are_refused_and_the_others_go_on() -> None:
    model = tiny_model("gemma3", SLIDING_WINDOW)
    with shared_prefixes(model, page_size=4, full_tokens=256, swa_tokens=128, journal=None) as ledger:
        book = ledger._entered
        with pytest.raises(InvalidArgument, match=r"request 'wide' cannot be taken: .* outside int32"):
            book.match("wide", [1, 2**40], chunk=8)
        assert book.failure is None
        assert book.match("sound", [1, 2, 3], chunk=8) == 0


@pytest.mark.parametrize("error", [ForeignSlots, MissingSwa, DoubleFree, UnalignedLength, InvalidArgument])
def test_a_wrong_argument_of_the_embedding_itself_is_no_mistake_of_the_caller(
    error: type[InvalidArgument], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_model("gemma3", SLIDING_WINDOW)

    def refuse(*_: Any) -> None:
        raise error("the embedding named a wrong slot")

    def fail_to_say_goodbye() -> None:
        with shared_prefixes(model, page_size=4, full_tokens=256, swa_tokens=128, journal=None) as ledger:
            book = ledger._entered
            assert book.match("r", [1, 2, 3], chunk=8) == 0
            assert book.reserve("r", [1, 2, 3], start=0, end=3)
            monkeypatch.setattr(Request, "abort", refuse)
            book.leave("r")
            assert "wrong slot" in str(ledger.report().stopped)

    with pytest.raises(error, match="wrong slot"):
        fail_to_say_goodbye()


def test_a_thread_that_has_the_cache_is_refused_and_not_left_waiting_for_itself() -> None:
    model = tiny_model("gemma3", SLIDING_WINDOW)
    with shared_prefixes(model, page_size=4, full_tokens=256, swa_tokens=128, journal=None) as ledger:
        with ledger.cache(), pytest.raises(TransactionError, match="has the cache already"):
            ledger.check()
        ledger.check()


def test_a_broken_cache_can_be_looked_at_from_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("gemma3", SLIDING_WINDOW)

    def break_down(*_: Any) -> None:
        raise OSError("the device is gone")

    ledger = shared_prefixes(model, page_size=4, full_tokens=256, swa_tokens=128, journal=None)

    def served() -> None:
        with ledger:
            monkeypatch.setattr(DevicePools, "commit", break_down)
            run = run_batching(model, [[1, 2, 3, 4, 5]])
            assert run.errors
            assert "the device is gone" in (ledger.report().stopped or "")

    with pytest.raises(OSError, match="gone"):
        served()
    with ledger.cache() as cache, pytest.raises(InvariantViolation, match="refuses further work"):
        cache.evict(1, 1)


def passes(database: Path) -> bool:
    with Journal.open(database, create=False) as journal:
        return judge(journal).passed
