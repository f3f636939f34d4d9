"""A real model under the reference scheduler: each request's logits are those of the model run alone.

Prefixes are shared, evicted, tombstoned and recovered meanwhile, and whatever is free holds NaN.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from kvledger.core.sinks import TransactionRecord
from kvledger.tools.engine.forward import ModelForward
from kvledger.tools.run.report import RunReport
from kvledger.tools.scheduler.forward import Work
from kvledger.tools.scheduler.tap import TapSink
from tests.support.engine import run_model
from tests.support.recoveries import DecodingUnderRecovery


def assert_right(report: RunReport, *, requests: int) -> None:
    logits = report.logits
    assert logits is not None
    assert logits.findings == []
    assert (logits.wrong, logits.nans) == (0, 0)
    assert 0 < logits.largest < 1e-4
    assert report.audit.findings == ()
    assert report.passed
    assert report.requests == requests
    # Who left before a first token was sampled has no logits to compare.
    assert requests - report.aborts - report.rejected <= logits.requests <= requests
    assert logits.positions > report.output_tokens * 0.9


def watched(monkeypatch: pytest.MonkeyPatch, *, page_size: int) -> DecodingUnderRecovery:
    """Hears each transaction of the run and looks at each batch before the model gets it."""
    seen = DecodingUnderRecovery()
    append, run = TapSink.append, ModelForward.run

    def appended(sink: TapSink, transaction: TransactionRecord) -> None:
        append(sink, transaction)
        seen.hear(transaction)

    def ran(forward: ModelForward, batch: Sequence[Work]) -> None:
        rows = {work.job.name: work.job.row[: work.end] // page_size for work in batch}
        decoding = {work.job.name for work in batch if work.start >= len(work.job.spec.prompt)}
        seen.look(rows, decoding=decoding)
        run(forward, batch)

    monkeypatch.setattr(TapSink, "append", appended)
    monkeypatch.setattr(ModelForward, "run", ran)
    return seen


@pytest.mark.parametrize(
    ("model", "page_size", "window", "requests"),
    [
        pytest.param("gemma3-tiny", 1, 15, 120, id="gemma3, pages of one token"),
        pytest.param("gemma3-tiny", 4, 3, 60, id="gemma3, pages of 4, window within one"),
        pytest.param("gemma3-tiny", 4, 15, 120, id="gemma3, pages of 4, window of several"),
        pytest.param("gemma3-tiny", 16, 7, 60, id="gemma3, pages of 16, window within one"),
        pytest.param("gemma3-tiny", 16, 40, 120, id="gemma3, pages of 16, window of several"),
        pytest.param("gemma2-tiny", 1, 15, 60, id="gemma2, pages of one token"),
        pytest.param("gemma2-tiny", 4, 15, 60, id="gemma2, pages of 4, window of several"),
        pytest.param("gemma2-tiny", 16, 15, 60, id="gemma2, pages of 16, window one short of one"),
        pytest.param("gpt-oss-tiny", 4, 15, 60, id="gpt-oss, pages of 4, window of several"),
    ],
)
def test_logits_are_those_of_the_model_alone_while_others_recover_what_is_being_decoded_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, page_size: int, window: int, requests: int
) -> None:
    seen = watched(monkeypatch, page_size=page_size)
    report = run_model(
        tmp_path / "run.db",
        model=model,
        page_size=page_size,
        window=window,
        swa_tokens=512,
        requests=requests,
        seed=1,
    )
    assert_right(report, requests=requests)
    assert len(seen.recoveries) >= 20
    assert len(seen.decoded) >= 5
    assert report.audit.counts.recoveries_under_lock == report.recoveries_locked >= 20
    assert report.hit_tokens > 0
    assert report.evicted_full > 0
    assert report.evicted_swa > 0
    assert report.tombstones > 0
    assert report.slid_tokens > 0
    assert report.branch_points > 0
    if requests >= 120:
        assert report.retractions > 0
        assert report.refreshes > 0


def test_skipping_locked_recovery_keeps_logits_right_and_costs_hits(tmp_path: Path) -> None:
    remap = run_model(tmp_path / "remap.db", requests=60, swa_tokens=512, seed=2)
    skip = run_model(tmp_path / "skip.db", requests=60, swa_tokens=512, seed=2, locked_recovery="skip")
    assert_right(remap, requests=60)
    assert_right(skip, requests=60)
    assert remap.recoveries_locked > 0 == skip.recoveries_locked
    assert skip.refused > 0 == remap.refused
    assert skip.hit_ratio < remap.hit_ratio


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("model", ["gemma3-tiny", "gemma2-tiny"])
def test_logits_on_a_device_are_those_of_the_model_run_alone_there(tmp_path: Path, model: str) -> None:
    report = run_model(tmp_path / "run.db", model=model, requests=60, device="cuda")
    assert_right(report, requests=60)
