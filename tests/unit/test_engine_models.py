"""The engine's models, what their logits are held against, and the workload that is thinned for them."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from kvledger.core.errors import InvalidArgument
from kvledger.tools.engine.forward import ModelForward, fit
from kvledger.tools.engine.hybrid import layout_of, window_of
from kvledger.tools.engine.library import UnsupportedSetup
from kvledger.tools.engine.logits import LogitsCheck, run_alone
from kvledger.tools.engine.models import ARCHITECTURES, WINDOW, build_model, layout_by_name
from kvledger.tools.engine.workload import ThinnedWorkload
from kvledger.tools.workload import WorkRequest, builtin_workload
from kvledger.tools.workload.spec import Tokens
from tests.support.engine import EngineByHand, text
from tests.support.witness import open_cache


def test_the_tiny_gemma3_has_165056_parameters_and_sees_16_tokens_in_its_sliding_layers() -> None:
    model = build_model("gemma3-tiny")
    assert sum(parameter.numel() for parameter in model.parameters()) == 165_056
    assert model.config.sliding_window == 16
    assert window_of(model.config) == WINDOW == 15


@pytest.mark.parametrize("name", list(ARCHITECTURES))
def test_a_models_layout_names_its_full_and_its_sliding_layers(name: str) -> None:
    layout = layout_by_name(name, dtype="bfloat16")
    model = build_model(name, dtype="bfloat16")
    assert layout == layout_of(model.config, dtype="bfloat16")
    assert layout.full_layers
    assert layout.swa_layers
    assert sorted(layout.full_layers + layout.swa_layers) == [0, 1, 2, 3]
    for layer in layout.swa_layers:
        assert model.config.layer_types[layer] == "sliding_attention"


@pytest.mark.parametrize("name", list(ARCHITECTURES))
def test_weights_are_the_same_in_every_run_and_leave_the_generator_alone(name: str) -> None:
    torch.manual_seed(5)
    wanted = torch.rand(1)
    torch.manual_seed(5)
    first, again, other = build_model(name), build_model(name), build_model(name, seed=1)
    assert torch.equal(torch.rand(1), wanted)
    row = text(0, 20)
    logits = [run_alone(model)(row, [19]) for model in (first, again, other)]
    assert torch.equal(logits[0], logits[1])
    assert not torch.equal(logits[0], logits[2])


@pytest.mark.parametrize("name", list(ARCHITECTURES))
def test_one_token_far_behind_shows_in_the_logits_five_hundred_times_above_the_bar(name: str) -> None:
    alone = run_alone(build_model(name))
    row = text(0, 200)
    changed = row.copy()
    changed[5] = (changed[5] + 1) % 256
    positions = list(range(40, 200))
    off = (alone(row, positions) - alone(changed, positions)).abs().amax(dim=1)
    assert off.min() > 0.05


@pytest.mark.parametrize("name", list(ARCHITECTURES))
def test_one_token_more_or_less_in_the_window_shows_as_clearly(name: str) -> None:
    row = text(0, 200)
    positions = list(range(40, 200))
    short, right = (run_alone(build_model(name, window=window))(row, positions) for window in (14, 15))
    assert (short - right).abs().amax(dim=1).min() > 0.05


def described(**changed: Any) -> SimpleNamespace:
    """What a configuration says that leaves the shape of its KV to the defaults of `transformers`."""
    said = {
        "layer_types": ["sliding_attention", "full_attention"],
        "sliding_window": 16,
        "num_attention_heads": 4,
        "hidden_size": 64,
    }
    return SimpleNamespace(**(said | changed))


@pytest.mark.parametrize(
    ("changed", "kv_heads", "head_dim"),
    [
        ({}, 4, 16),
        ({"num_key_value_heads": None, "head_dim": None}, 4, 16),
        ({"num_key_value_heads": 2}, 2, 16),
        ({"head_dim": 8}, 4, 8),
    ],
)
def test_a_configuration_that_names_no_kv_heads_or_head_dim_has_those_of_its_queries(
    changed: dict[str, Any], kv_heads: int, head_dim: int
) -> None:
    layout = layout_of(described(**changed), dtype="float32")
    assert (layout.kv_heads, layout.head_dim) == (kv_heads, head_dim)
    assert (layout.swa_layers, layout.full_layers) == ((0,), (1,))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"layer_types": ["full_attention", "linear_attention"]}, r"kinds \['linear_attention'\]"),
        ({"layer_types": None}, "without both full and sliding layers"),
        ({"layer_types": ["full_attention"] * 2}, "without both full and sliding layers"),
        ({"layer_types": ["sliding_attention"] * 2}, "without both full and sliding layers"),
        ({"sliding_window": None}, "sliding_window=None"),
        ({"sliding_window": 1}, "sliding_window=1"),
        ({"num_kv_shared_layers": 1}, "KV of other layers"),
    ],
)
def test_a_model_that_is_not_hybrid_is_refused(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(UnsupportedSetup, match=said):
        layout_of(described(**changed), dtype="float32")


def test_kv_of_a_dtype_that_the_pools_do_not_hold_is_refused() -> None:
    with pytest.raises(UnsupportedSetup, match="KV of dtype float8_e4m3fn"):
        layout_of(described(), dtype="float8_e4m3fn")


def test_a_name_that_is_no_model_is_refused_with_those_that_are() -> None:
    with pytest.raises(InvalidArgument, match="gemma3-tiny, gemma2-tiny, gpt-oss-tiny"):
        build_model("gemma")


def test_a_cache_for_kv_of_another_shape_is_refused() -> None:
    layout = layout_by_name("gemma3-tiny").model_copy(update={"head_dim": 8})
    cache = open_cache(page=4, window=15, layout=layout)[0]
    with pytest.raises(InvalidArgument, match="the model's KV is"):
        fit(build_model("gemma3-tiny"), cache.config)


def test_a_model_that_was_fitted_to_another_cache_is_refused() -> None:
    cache = open_cache(page=4, window=15, layout=layout_by_name("gemma3-tiny"))[0]
    fitted = fit(build_model("gemma3-tiny"), cache.config.model_copy(update={"page_size": 8}))
    with pytest.raises(InvalidArgument, match="fitted to another configuration"):
        ModelForward(cache, fitted, check=None)


def zeros(tokens: Tokens, positions: list[int]) -> torch.Tensor:
    """A model whose every logit is its position."""
    return torch.tensor(positions, dtype=torch.float32)[:, None].expand(-1, 3)


def test_a_check_tells_the_largest_and_the_mean_difference_and_where_the_first_wrong_one_was() -> None:
    check = LogitsCheck(zeros, bar=0.1)
    row = text(0, 10)
    check.sampled("a", row[:5], torch.tensor([4.0, 4.05, 4.0]))
    check.sampled("a", row[:6], torch.tensor([5.0, 5.0, 5.4]))
    check.sampled("b", row[:1], torch.tensor([0.0, 0.0, 0.0]))
    check.settle("a")
    check.settle("nobody")
    check.settle_rest()
    first, second = check.differences
    assert (first.request_id, first.positions, first.first, first.nans) == ("a", 2, 5, 0)
    assert first.largest == pytest.approx(0.4)
    assert first.mean == pytest.approx(0.45 / 6)
    assert (second.request_id, second.largest, second.first) == ("b", 0.0, None)
    report = check.report(model="zeros", dtype="float32")
    assert (report.requests, report.positions, report.wrong) == (2, 3, 1)
    assert report.mean == pytest.approx(0.45 / 9)
    assert "request a: logits of 2 positions differ by 0.4" in report.findings[0]


def test_a_logit_that_is_no_number_is_wrong_whatever_the_bar() -> None:
    check = LogitsCheck(zeros, bar=float("inf"))
    check.sampled("a", text(0, 1), torch.tensor([0.0, float("nan"), 0.0]))
    check.sampled("a", text(0, 2), torch.tensor([1.0, 1.5, 1.0]))
    check.settle("a")
    report = check.report(model="zeros", dtype="float32")
    assert (report.wrong, report.nans, report.largest) == (1, 1, 0.5)
    assert "first at position 0" in report.findings[0]
    assert "NaN" not in report.model_dump_json()


def test_what_a_request_samples_is_what_the_model_alone_says_at_that_position() -> None:
    engine = EngineByHand()
    job = engine.open("one", text(9, 33))
    for end in (16, 20, 33):
        engine.compute(engine.work(job, end), publish=True)
    off = engine.settle(job)
    assert (off.positions, off.nans, off.first) == (1, 0, None)
    assert off.largest < 1e-4


def test_a_thinned_workload_keeps_who_began_with_whom() -> None:
    full = list(builtin_workload(60, seed=0))
    thinned = list(ThinnedWorkload(full, keep=8, hurry=8, vocabulary=50_000))
    rows, thin_rows = ([_row(request) for request in requests] for requests in (full, thinned))
    for left in range(60):
        for right in range(left):
            shared = _shared(rows[left], rows[right])
            assert _shared(thin_rows[left], thin_rows[right]) == -(-shared // 8)
    for before, after in zip(full, thinned, strict=True):
        assert len(after.prompt) == -(-len(before.prompt) // 8) > 0
        assert len(_row(after)) == -(-len(_row(before)) // 8)
        assert after.namespace == before.namespace
        assert (after.abort_at is None) == (before.abort_at is None)
        assert after.abort_at is None or after.abort_at <= len(_row(after))


def test_a_thinned_workload_stays_in_its_vocabulary() -> None:
    for request in ThinnedWorkload(builtin_workload(20, seed=0), keep=8, hurry=8, vocabulary=256):
        row = _row(request)
        assert row.dtype == np.int32
        assert 0 <= row.min() <= row.max() < 256


def _row(request: WorkRequest) -> Tokens:
    return np.concatenate([request.prompt, request.output])


def _shared(left: Tokens, right: Tokens) -> int:
    length = min(len(left), len(right))
    differ = np.flatnonzero(left[:length] != right[:length])
    return int(differ[0]) if len(differ) else length
