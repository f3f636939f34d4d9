"""Hybrid models in the continuous batching of transformers: prefixes shared, and nobody's logits moved."""

from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from transformers import GenerationConfig
from transformers.generation import ContinuousBatchingConfig
from transformers.generation.continuous_batching.cache import PagedAttentionCache

from kvledger.core.events import Pages
from kvledger.core.inputs import Slots
from kvledger.core.page_arrays import narrowed
from kvledger.core.sinks import TransactionRecord
from kvledger.journal import Journal
from kvledger.journal.audit import Verdict
from kvledger.journal.recorder import Recorder
from kvledger.tools.audit.judge import judge
from kvledger.tools.embed.transformers import SharedPrefixes, shared_prefixes
from kvledger.tools.embed.transformers.book import RequestBook
from tests.support.batching import (
    ALONE,
    ARCHITECTURES,
    assert_same,
    prompts_with_heads,
    run_batching,
    tiny_model,
)
from tests.support.embedded import idle
from tests.support.recoveries import DecodingUnderRecovery

SLIDING_WINDOW = 18
"""17 tokens before the one that looks: a window that is no multiple of any page here."""

WINDOW = SLIDING_WINDOW - 1

HEADS = [9, 24, 70, 41, 56]
LONG_HEADS = [70, 56, 41, 100]


def audited(database: Path) -> Verdict:
    with Journal.open(database, create=False) as journal:
        verdict = judge(journal)
    assert verdict.passed, str(verdict.findings)
    return verdict


@pytest.mark.parametrize("page_size", [4, 16])
@pytest.mark.parametrize("architecture", sorted(ARCHITECTURES))
def test_each_token_is_chosen_by_the_scores_of_a_run_that_shares_nothing(
    architecture: str, page_size: int, tmp_path: Path
) -> None:
    model = tiny_model(architecture, SLIDING_WINDOW)
    heads = [page_size + 1, WINDOW + page_size, 3 * WINDOW + 5, 70]
    prompts = prompts_with_heads(heads=heads, tails=[5, 1, 30], copies=4)
    alone = run_batching(model, prompts, **ALONE)
    with shared_prefixes(
        model,
        page_size=page_size,
        full_tokens=1_024,
        swa_tokens=512,
        journal=tmp_path / "run.db",
        poison=True,
    ) as ledger:
        shared = run_batching(model, prompts)
        ledger.check()
    report = ledger.report()
    assert_same(shared, alone)
    assert report.prefill_tokens_saved > 0
    assert shared.computed_tokens == alone.computed_tokens - report.prefill_tokens_saved
    assert (report.requests, report.finished, report.aborted) == (16, 16, 0)
    assert report.prompt_tokens == sum(map(len, prompts))
    assert audited(tmp_path / "run.db").counts.requests == 16
    assert report.journal == 1


def test_prompts_that_share_exactly_a_window_and_a_page_reuse_all_of_it() -> None:
    model = tiny_model("gemma3", SLIDING_WINDOW)
    window_pages = 20  # tokens of the pages that a window of 17 touches
    head = window_pages + 4
    first, second = prompts_with_heads(heads=[head], tails=[1, 8], copies=2)
    alone = run_batching(model, [second])
    with shared_prefixes(
        model, page_size=4, full_tokens=256, swa_tokens=128, poison=True, journal=None
    ) as ledger:
        assert ledger.config.sliding_window == WINDOW
        run_batching(model, [first], new_tokens=1)
        with ledger.cache() as cache:
            # Not a token more than a window is left before the end of the head.
            cache.evict(swa_tokens=cache.sizes().swa.evictable - window_pages)
            assert [node.swa_slots is None for node in cache.nodes()] == [True, False]
        shared = run_batching(model, [second])
    assert_same(shared, alone)
    assert ledger.report().prefill_tokens_saved == head


def test_prompts_that_come_together_compute_a_common_head_once() -> None:
    model = tiny_model("gemma3", SLIDING_WINDOW)
    prompts = prompts_with_heads(heads=[40], tails=[7, 3], copies=6)
    prompts += prompts_with_heads(heads=[30], tails=[5], copies=1, seed=6)
    alone = run_batching(model, prompts, batch_tokens=512)
    with shared_prefixes(
        model, page_size=4, full_tokens=1_024, swa_tokens=512, poison=True, journal=None
    ) as ledger:
        shared = run_batching(model, prompts, batch_tokens=512)
    assert_same(shared, alone)
    assert ledger.report().prefill_tokens_saved == 5 * 40
    assert shared.batches == alone.batches + 1  # for those that waited


def test_another_thread_may_ask_while_a_batch_runs() -> None:
    model = tiny_model("gemma3", SLIDING_WINDOW)
    ledger = shared_prefixes(model, page_size=4, full_tokens=256, swa_tokens=128, journal=None)
    running: list[int] = []

    def look() -> None:
        ledger.check()
        with ledger.cache() as cache:
            running.append(cache.sizes().full.protected + cache.sizes().full.held)

    def ask(batch: int) -> None:
        thread = Thread(target=look)
        thread.start()
        thread.join()

    with ledger:
        run = run_batching(model, prompts_with_heads(heads=[24], tails=[5], copies=3), at_batch=ask)
    assert not run.errors
    assert len(running) == run.batches
    assert min(running) > 0


def test_prefixes_outlive_a_call_and_are_forgotten_when_asked() -> None:
    model = tiny_model("gemma3", SLIDING_WINDOW)
    prompts = prompts_with_heads(heads=[40], tails=[7], copies=3)
    with shared_prefixes(
        model, page_size=4, full_tokens=512, swa_tokens=256, poison=True, journal=None
    ) as ledger:
        first = run_batching(model, prompts)
        before = ledger.report().prefill_tokens_saved
        second = run_batching(model, prompts)
        assert ledger.report().prefill_tokens_saved - before == 3 * 44
        ledger.forget()
        before = ledger.report().prefill_tokens_saved
        third = run_batching(model, prompts[:1])
        assert ledger.report().prefill_tokens_saved == before
    assert_same(second, first)
    assert third.tokens["req_0"] == first.tokens["req_0"]


class WatchedBatches:
    """Hears what a run journals and sees, at the end of each batch, the rows that its requests read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen = DecodingUnderRecovery()
        self._rows: dict[str, Pages] = {}
        self._decoding: set[str] = set()
        append, slots = Recorder.append, RequestBook.slots

        def appended(recorder: Recorder, transaction: TransactionRecord) -> None:
            append(recorder, transaction)
            self.seen.hear(transaction)

        def looked_up(book: RequestBook, name: str, *, end: int, swa_from: int) -> tuple[Slots, Slots]:
            full, swa = slots(book, name, end=end, swa_from=swa_from)
            entry = book._entries[name]
            self._rows[name] = narrowed(full // book.cache.config.page_size)
            if entry.request.computed_len == end - 1 >= len(entry.prompt):
                self._decoding.add(name)
            return full, swa

        monkeypatch.setattr(Recorder, "append", appended)
        monkeypatch.setattr(RequestBook, "slots", looked_up)

    def at_batch(self, batch: int) -> None:
        self.seen.look(self._rows, decoding=self._decoding)
        self._rows, self._decoding = {}, set()


@pytest.mark.parametrize(
    ("architecture", "page_size", "window", "full_tokens", "swa_tokens", "heads", "copies"),
    [
        pytest.param("gemma3", 4, 3, 208, 64, HEADS, 20, id="gemma3, pages of 4, window within one"),
        pytest.param("gemma3", 4, 17, 208, 104, HEADS, 20, id="gemma3, pages of 4, window of several"),
        pytest.param("gemma3", 16, 7, 480, 128, HEADS, 25, id="gemma3, pages of 16, window within one"),
        pytest.param("qwen3", 16, 41, 640, 192, LONG_HEADS, 40, id="qwen3, pages of 16, window of several"),
    ],
)
def test_logits_stay_while_others_wait_resume_and_recover_what_is_being_decoded_on(
    architecture: str,
    page_size: int,
    window: int,
    full_tokens: int,
    swa_tokens: int,
    heads: list[int],
    copies: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = tiny_model(architecture, window + 1)
    prompts = prompts_with_heads(heads=heads, tails=[5, 1, 30, 12], copies=copies)
    alone = run_batching(model, prompts, new_tokens=12, **ALONE)
    batches = WatchedBatches(monkeypatch)
    with shared_prefixes(
        model,
        page_size=page_size,
        full_tokens=full_tokens,
        swa_tokens=swa_tokens,
        journal=tmp_path / "run.db",
        durability="background",
        tokens="hash",
        token_key=bytes(range(32)),
        poison=True,
    ) as ledger:
        shared = run_batching(model, prompts, new_tokens=12, at_batch=batches.at_batch)
        ledger.check()
        assert idle(ledger)
    report = ledger.report()
    assert_same(shared, alone)
    assert report.finished == len(prompts)
    assert min(report.retractions, report.tombstones, report.evicted_full_tokens) > 0
    assert len(batches.seen.recoveries) >= 20
    assert len(batches.seen.decoded) >= 10
    assert report.prefill_tokens_saved > 0
    assert report.anomalies == 0
    counts = audited(tmp_path / "run.db").counts
    assert counts.recoveries_under_lock == report.recoveries_locked >= 20


def test_a_cancelled_request_gives_everything_back_and_the_others_go_on(tmp_path: Path) -> None:
    model = tiny_model("gemma3", SLIDING_WINDOW)
    prompts = prompts_with_heads(heads=[24, 60], tails=[5, 11], copies=6)
    leaving = {"req_1": 1, "req_4": 3, "req_7": 2}
    alone = run_batching(model, prompts, new_tokens=8, cancel=leaving, **ALONE)
    with shared_prefixes(
        model, page_size=4, full_tokens=512, swa_tokens=256, journal=tmp_path / "run.db", poison=True
    ) as ledger:
        shared = run_batching(model, prompts, new_tokens=8, cancel=leaving)
        assert idle(ledger)
        ledger.check()
    assert_same(shared, alone, except_for=sorted(leaving))
    assert set(shared.tokens) == {f"req_{number}" for number in range(12)} - set(leaving)
    assert (ledger.report().finished, ledger.report().aborted) == (9, 3)
    audited(tmp_path / "run.db")
    with Journal.open(tmp_path / "run.db", create=False) as journal:
        told = {(t.op, t.request_id) for t in journal.reader().transactions() if t.op in ("finish", "abort")}
    assert told == {
        ("abort" if request in leaving else "finish", request) for request in map("req_{}".format, range(12))
    }


def test_generate_batch_is_all_a_user_calls_and_the_model_is_its_old_self_afterwards() -> None:
    model, other = tiny_model("gpt-oss", SLIDING_WINDOW), tiny_model("gemma3", SLIDING_WINDOW)
    prompts = prompts_with_heads(heads=[40], tails=[6], copies=3)
    before = model.config._attn_implementation
    generation = GenerationConfig(max_new_tokens=4, do_sample=False, eos_token_id=-1, pad_token_id=0)
    batching = ContinuousBatchingConfig(page_size=4, num_blocks=256, max_batch_tokens=48)

    def answers(of: Any) -> list[list[int]]:
        told = of.generate_batch(prompts, generation_config=generation, continuous_batching_config=batching)
        return [output.generated_tokens for output in told.values()]

    expected = answers(model)
    with shared_prefixes(model, page_size=4, full_tokens=512, swa_tokens=256, journal=None) as ledger:
        assert answers(model) == expected
        saved = ledger.report().prefill_tokens_saved
        assert saved > 0
        answers(other)
        assert ledger.report().requests == 3
        assert cache_class_of(other) is PagedAttentionCache
        assert cache_class_of(model) is not PagedAttentionCache
    assert cache_class_of(model) is PagedAttentionCache
    assert model.config._attn_implementation == before
    assert "init_continuous_batching" not in vars(model)
    assert str(ledger.report()).splitlines()[1].startswith(f"prefill     {saved} of 138")


def cache_class_of(model: Any) -> type:
    """What the scheduler of a manager made now has for its paged cache."""
    manager = model.init_continuous_batching(
        continuous_batching_config=ContinuousBatchingConfig(num_blocks=4, max_batch_tokens=16)
    )
    try:
        return type(manager._create_batch_processor().cache)
    finally:
        manager.switch_to_cb_friendly_attn(model)
        if manager._original_attn_impl is not None:
            model.set_attn_implementation(manager._original_attn_impl)


def test_a_manager_that_outlives_its_block_is_stopped_by_the_end_of_it() -> None:
    model = tiny_model("gemma3", SLIDING_WINDOW)
    ledger: SharedPrefixes
    with shared_prefixes(model, page_size=4, full_tokens=512, swa_tokens=256, journal=None) as ledger:
        manager = model.init_continuous_batching(
            generation_config=GenerationConfig(max_new_tokens=4, do_sample=False, eos_token_id=-1)
        )
        manager.start()
        manager.add_request([1, 2, 3], request_id="mine")
        output = None
        while output is None:
            output = manager.get_result(timeout=1)
    assert not manager.is_running()
    assert ledger.report().finished == 1
    assert len(output.generated_tokens) == 4
