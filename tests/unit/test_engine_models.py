"""The engine's models, what their logits are held against, and the workload that is thinned for them."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from kvledger.core.errors import InvalidArgument
from kvledger.tools.engine.forward import ModelForward
from kvledger.tools.engine.logits import LogitsCheck, run_alone
from kvledger.tools.engine.models import (
    ARCHITECTURES,
    WINDOW,
    build_model,
    layout_by_name,
    layout_of,
    window_of,
)
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


def test_a_model_with_layers_of_another_kind_is_refused() -> None:
    config = SimpleNamespace(layer_types=["full_attention", "linear_attention"])
    with pytest.raises(InvalidArgument, match="linear_attention"):
        layout_of(config, dtype="float32")
    with pytest.raises(InvalidArgument, match="no kind"):
        layout_of(SimpleNamespace(), dtype="float32")


def test_a_name_that_is_no_model_is_refused_with_those_that_are() -> None:
    with pytest.raises(InvalidArgument, match="gemma3-tiny, gemma2-tiny, gpt-oss-tiny"):
        build_model("gemma")


def test_a_cache_for_kv_of_another_shape_is_refused() -> None:
    layout = layout_by_name("gemma3-tiny").model_copy(update={"head_dim": 8})
    cache = open_cache(page=4, window=15, layout=layout)[0]
    with pytest.raises(InvalidArgument, match="the model's KV is"):
        ModelForward(cache, build_model("gemma3-tiny"), check=None)


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
