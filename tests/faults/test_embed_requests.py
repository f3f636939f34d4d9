"""What a hostile caller asks of the embedding: one request or manager is refused, the others go on."""

import gc
import weakref
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import GenerationConfig

from kvledger.core.errors import KVUnreadable
from kvledger.tools.embed.transformers import UnsupportedSetup, shared_prefixes
from kvledger.tools.embed.transformers.paged_cache import LedgerPagedCache
from tests.support.batching import (
    ALONE,
    TOLERANCE,
    VOCABULARY,
    assert_same,
    furthest,
    prompts_with_heads,
    run_batching,
    tiny_model,
)
from tests.support.embedded import idle

SIZES: dict[str, Any] = {"page_size": 4, "full_tokens": 64, "swa_tokens": 64, "journal": None}
GREEDY = {"do_sample": False, "eos_token_id": -1, "pad_token_id": 0}
SOUND = [7, 8, 9, 10, 11, 12]


@pytest.fixture
def model() -> Any:
    return tiny_model("gemma3", 18)


def test_prompts_that_could_never_run_fail_alone(model: Any) -> None:
    said: dict[str, tuple[Any, str]] = {
        "empty": ([], "has no tokens"),
        "long": ([5] * 65, "has 65 tokens, the Full pool 64"),
        "negative": ([1, -2, 3], "has token -2"),
        "unknown": ([1, VOCABULARY], f"has token {VOCABULARY}"),
        "wide": ([1, 2**40], "outside int32"),
        "floats": ([1.5, 2.0], "must be integers"),
    }

    def submit(manager: Any) -> None:
        for name, (prompt, _) in said.items():
            manager.add_request(prompt, request_id=name)
        manager.add_request(SOUND, request_id="sound")
        manager.add_request(SOUND, request_id=5)

    with shared_prefixes(model, **SIZES, poison=True) as ledger:
        outputs = {output.request_id: output for output in served(model, submit, answers=len(said) + 2)}
        assert idle(ledger)
        assert ledger.report().stopped is None
    assert "must be a non-empty string" in outputs.pop(5).error
    sound = outputs.pop("sound")
    assert sound.error is None
    assert sound.generated_tokens == run_batching(model, [SOUND], new_tokens=5).tokens["req_0"]
    assert outputs.keys() == said.keys()
    for name, (_, sentence) in said.items():
        assert sentence in outputs[name].error
        assert outputs[name].generated_tokens == []
    assert (ledger.report().requests, ledger.report().finished) == (1, 1)


def served(model: Any, submit: Callable[[Any], None], *, answers: int) -> list[Any]:
    """What a manager answers to requests that are submitted before it starts."""
    manager = model.init_continuous_batching(generation_config=GenerationConfig(max_new_tokens=5, **GREEDY))
    submit(manager)
    manager.start()
    outputs: list[Any] = []
    while len(outputs) < answers and (output := manager.get_result(timeout=30)) is not None:
        outputs.append(output)
    manager.stop(block=True, hard_stop=len(outputs) < answers)  # else it waits for who never gets an answer
    return outputs


def test_an_id_that_waits_or_runs_already_is_refused_and_its_owner_goes_on(model: Any) -> None:
    def submit(manager: Any) -> None:
        manager.add_request(SOUND, request_id="mine")
        manager.add_request([1, 2, 3], request_id="mine")
        manager.add_request([4, 5, 6], request_id="other")

    with shared_prefixes(model, **SIZES) as ledger:
        outputs = served(model, submit, answers=3)
        assert idle(ledger)
    told = {(output.request_id, output.error, len(output.generated_tokens)) for output in outputs}
    assert told == {
        ("mine", "request id 'mine' waits already: ids must differ", 0),
        ("mine", None, 5),
        ("other", None, 5),
    }


@pytest.mark.parametrize("warmed", [False, True])
def test_a_second_manager_gets_no_cache_while_the_first_one_runs(warmed: bool, model: Any) -> None:
    generation = GenerationConfig(max_new_tokens=5, **GREEDY)
    with shared_prefixes(model, **SIZES) as ledger:
        first, second = (model.init_continuous_batching(generation_config=generation) for _ in range(2))
        for manager in (first, second) if warmed else ():
            manager.warmup()  # makes its scheduler, while none of them runs
        first.start()
        first.add_request(SOUND, request_id="before")
        assert first.get_result(timeout=30).error is None
        second.add_request(SOUND, request_id="refused")
        second.start()
        refused = second.get_result(timeout=30)
        assert "one manager at a time" in refused.error
        second.stop(block=True)
        assert isinstance(second.background_thread_status.fatal_error, UnsupportedSetup)
        first.add_request(SOUND, request_id="after")
        assert first.get_result(timeout=30).error is None
        first.stop(block=True)
        assert idle(ledger)
    assert ledger.report().finished == 2
    assert ledger.report().stopped is None


def test_a_manager_with_a_scheduler_of_a_block_that_is_over_gets_no_cache(model: Any) -> None:
    with shared_prefixes(model, **SIZES) as ledger:
        manager = model.init_continuous_batching(
            generation_config=GenerationConfig(max_new_tokens=5, **GREEDY)
        )
        manager.warmup()
    manager.add_request(SOUND)
    manager.start()
    assert "the block that shared prefixes is over" in manager.get_result(timeout=30).error
    manager.stop(block=True)
    assert ledger.report().stopped is None


def test_a_block_keeps_none_of_the_managers_that_it_is_done_with(model: Any) -> None:
    managers: list[weakref.ref[Any]] = []
    with shared_prefixes(model, **SIZES):
        for _ in range(2):
            with model.continuous_batching_context_manager(warmup=False) as manager:
                managers.append(weakref.ref(manager))
            del manager
        gc.collect()
        assert managers[0]() is None


def test_managers_may_be_made_by_several_threads_at_once(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def make() -> Any:
        return model.init_continuous_batching(generation_config=GenerationConfig(max_new_tokens=5, **GREEDY))

    others: list[Any] = []
    turns = iter([True])

    def is_running() -> bool:
        """Another thread has its turn while it is looked who runs."""
        if next(turns, False):
            others.append(make())
        return False

    with shared_prefixes(model, **SIZES):
        first = make()
        monkeypatch.setattr(first, "is_running", is_running)
        last = make()
        assert len({id(manager) for manager in (first, *others, last)}) == 3
        monkeypatch.undo()


@pytest.mark.parametrize("attention", ["flex_attention", "paged|sdpa", "nonsense"])
def test_an_attention_that_the_scheduler_does_not_know_is_refused_before_a_manager_is_made(
    attention: str, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shared_prefixes(model, **SIZES) as ledger:
        monkeypatch.setattr(model.config, "_attn_implementation_internal", attention)
        with pytest.raises(UnsupportedSetup, match="attn_implementation"):
            model.init_continuous_batching()
        monkeypatch.undo()
        assert not run_batching(model, [SOUND]).errors
        assert ledger.report().finished == 1


def test_what_a_request_outgrows_ends_the_loop_once_nothing_else_can_run(model: Any) -> None:
    with shared_prefixes(model, **SIZES, poison=True) as ledger:
        run = run_batching(model, [[5] * 60, [6] * 20], new_tokens=12)
        assert idle(ledger)
        assert not run_batching(model, [SOUND]).errors
    assert set(run.errors) == {"req_0"}
    assert "no requests can be offloaded" in run.errors["req_0"]
    assert len(run.tokens["req_1"]) == 12


def test_who_waits_in_the_queue_of_a_loop_that_ends_has_left_too(model: Any) -> None:
    with shared_prefixes(model, **SIZES, poison=True) as ledger:
        run = run_batching(model, [[5] * 31, [6] * 31], new_tokens=40)
        assert (ledger.report().retractions, ledger.report().aborted) == (1, 2)
        ledger.forget()
    assert set(run.errors) == {"req_0", "req_1"}


@pytest.mark.parametrize("started", [False, True])
def test_a_model_has_its_attention_back_also_after_a_manager_that_nobody_stopped(started: bool) -> None:
    eager = tiny_model("gpt-oss", 18)

    def fails(*_: Any) -> None:
        raise RuntimeError("the forward pass fails")

    with shared_prefixes(eager, **SIZES):
        manager = eager.init_continuous_batching(
            generation_config=GenerationConfig(max_new_tokens=2, **GREEDY)
        )
        assert eager.config._attn_implementation == "paged|eager"
        if started:
            hook = eager.register_forward_pre_hook(fails)
            manager.add_request(SOUND)
            manager.start()
            output = manager.get_result(timeout=30)
            manager.join(0.0)
            hook.remove()
            assert output.error == "the forward pass fails"
            assert not manager.is_running()
    assert eager.config._attn_implementation == "eager"


def test_a_block_that_is_over_can_be_left_again_and_changes_nothing(model: Any) -> None:
    with shared_prefixes(model, **SIZES) as ledger:
        run_batching(model, [SOUND])
    report = ledger.report()
    ledger.__exit__(None, None, None)
    assert ledger.report() == report
    with ledger.cache() as cache, pytest.raises(KVUnreadable, match="given back"):
        cache.pool.fingerprint([1])
    assert "init_continuous_batching" not in vars(model)


def test_a_request_cancelled_in_the_queue_it_was_put_back_into_leaves_nothing_behind(model: Any) -> None:
    prompts = prompts_with_heads(heads=[9, 24, 70, 41, 56], tails=[5, 1, 30, 12], copies=6)
    leaving = {f"req_{number}": 1 + number * 7 % 11 for number in range(0, 30, 3)}
    alone = run_batching(model, prompts, new_tokens=12, cancel=leaving, **ALONE)
    sizes = SIZES | {"full_tokens": 208, "swa_tokens": 104}
    with shared_prefixes(model, **sizes, poison=True) as ledger:
        shared = run_batching(model, prompts, new_tokens=12, cancel=leaving)
        assert idle(ledger)
        ledger.check()
    assert furthest(shared, alone) <= TOLERANCE
    assert all(shared.tokens[request] == alone.tokens[request] for request in alone.tokens)
    assert not shared.errors
    assert ledger.report().retractions > 0
    assert ledger.report().aborted > 0


def test_who_waits_is_served_after_all_that_ran_were_cancelled(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = {"one": [5] * 31, "other": [6] * 31}  # 64 tokens hold both, and only one can go on
    retracted: list[str] = []
    free_blocks = LedgerPagedCache.free_blocks

    with shared_prefixes(model, **SIZES, poison=True) as ledger:

        def submit(manager: Any) -> None:
            for name, prompt in prompts.items():
                manager.add_request(prompt, request_id=name)

            def free_and_cancel(cache: LedgerPagedCache, request_id: str, no_cache: bool = False) -> None:
                free_blocks(cache, request_id, no_cache)
                if no_cache:
                    retracted.append(request_id)
                    for name in prompts.keys() - {request_id}:
                        manager.cancel_request(name)

            monkeypatch.setattr(LedgerPagedCache, "free_blocks", free_and_cancel)

        outputs = served(model, submit, answers=1)
        assert idle(ledger)
    (waited,) = retracted
    assert [(output.request_id, output.error) for output in outputs] == [(waited, None)]
    alone = run_batching(model, [prompts[waited]], new_tokens=5)
    assert outputs[0].generated_tokens == alone.tokens["req_0"]


def odd_prompts(page_size: int, *, window: int, most: int) -> list[list[int]]:
    """One text cut at every length at which something happens, each with and without a tail of its own."""
    text = prompts_with_heads(heads=[most], tails=[0], copies=1)[0]
    cuts = {1, 2, page_size - 1, page_size, page_size + 1, 2 * page_size}
    cuts |= {window - 1, window, window + 1, window + page_size, window + page_size + 1, most}
    lengths = sorted(length for length in cuts if 0 < length <= most)
    return [text[:length] for length in lengths] + [[*text[:length], 1, 2] for length in lengths[:-1]]


@pytest.mark.parametrize(
    ("policy", "page_size", "full_tokens", "swa_tokens"),
    [("remap", 4, 64, 32), ("skip", 4, 256, 64), ("remap", 16, 128, 80), ("remap", 64, 256, 256)],
)
def test_prompts_of_odd_lengths_in_pools_of_few_pages_have_the_logits_of_a_run_alone(
    policy: Any, page_size: int, full_tokens: int, swa_tokens: int, model: Any
) -> None:
    prompts = odd_prompts(page_size, window=17, most=min(full_tokens - 8, 180))
    alone = run_batching(model, prompts, **ALONE)
    with shared_prefixes(
        model,
        page_size=page_size,
        full_tokens=full_tokens,
        swa_tokens=swa_tokens,
        locked_recovery=policy,
        journal=None,
        poison=True,
    ) as ledger:
        shared = run_batching(model, prompts)
        assert idle(ledger)
        ledger.check()
    assert_same(shared, alone)
    assert ledger.report().prefill_tokens_saved > 0
    assert ledger.report().anomalies == 0
    if policy == "skip":
        assert ledger.report().recoveries_locked == 0


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"do_sample": True, "temperature": 0.7, "top_k": 20, "top_p": 0.9}, id="sampling"),
        pytest.param({"do_sample": False, "eos_token_id": list(range(VOCABULARY))}, id="the end at once"),
        pytest.param({"do_sample": False, "max_new_tokens": 1}, id="one token"),
    ],
)
def test_every_request_leaves_whatever_the_generation_is_told(options: dict[str, Any], model: Any) -> None:
    told: dict[str, Any] = {"max_new_tokens": 5, "eos_token_id": -1, "pad_token_id": 0} | options
    prompts = prompts_with_heads(heads=[24], tails=[5, 9], copies=4)
    with shared_prefixes(model, **SIZES) as ledger:
        outputs = model.generate_batch(prompts, generation_config=GenerationConfig(**told))
        assert idle(ledger)
    assert [output.error for output in outputs.values()] == [None] * 4
    assert ledger.report().finished == 4
    assert ledger.report().prefill_tokens_saved > 0


class OnlyItsLength:
    """A prompt that nobody may look into."""

    def __init__(self, length: int) -> None:
        self._length = length

    def __len__(self) -> int:
        return self._length


class NotedSlices(list[int]):
    """Generated tokens, and how many of them were asked for each time."""

    def __init__(self, tokens: Sequence[int], asked: list[int]) -> None:
        super().__init__(tokens)
        self._asked = asked

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        self._asked.append(len(found))
        return found


def test_a_step_looks_at_new_tokens_only_however_long_the_context_is(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    mark = LedgerPagedCache.mark_complete_blocks

    def guarded(cache: LedgerPagedCache, state: Any, blocks: dict[str, int]) -> None:
        seen = SimpleNamespace(
            request_id=state.request_id,
            position_offset=state.position_offset,
            status=state.status,
            initial_tokens=OnlyItsLength(len(state.initial_tokens)),
            generated_tokens=NotedSlices(state.generated_tokens, asked),
        )
        mark(cache, seen, blocks)  # type: ignore[arg-type]

    monkeypatch.setattr(LedgerPagedCache, "mark_complete_blocks", guarded)
    prompts = prompts_with_heads(heads=[40], tails=[5], copies=3)
    with shared_prefixes(model, page_size=4, full_tokens=256, swa_tokens=128, journal=None):
        shared = run_batching(model, prompts, new_tokens=12)
    assert furthest(shared, run_batching(model, prompts, new_tokens=12)) <= TOLERANCE
    assert max(asked) == 1
