"""A real model under the reference scheduler: each request's logits are those of the model run alone.

Prefixes are shared, evicted, tombstoned and recovered meanwhile, and whatever is free holds NaN.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from kvledger.core.events import Pages, RecoveryMode, SwaRecovered
from kvledger.core.sinks import TransactionRecord
from kvledger.tools.engine.forward import ModelForward
from kvledger.tools.report import RunReport
from kvledger.tools.scheduler.forward import Work
from kvledger.tools.tap import TapSink
from tests.support.engine import run_model


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


@pytest.mark.parametrize(
    ("model", "page_size", "window"),
    [
        pytest.param("gemma3-tiny", 1, 15, id="gemma3, pages of one token"),
        pytest.param("gemma3-tiny", 16, 7, id="gemma3, window within a page"),
        pytest.param("gemma3-tiny", 16, 15, id="gemma3, window one short of a page"),
        pytest.param("gemma3-tiny", 4, 40, id="gemma3, window of ten pages"),
        pytest.param("gemma2-tiny", 1, 15, id="gemma2, pages of one token"),
        pytest.param("gemma2-tiny", 16, 15, id="gemma2, window within a page"),
        pytest.param("gpt-oss-tiny", 4, 15, id="gpt-oss"),
    ],
)
def test_logits_are_those_of_the_model_run_alone(
    tmp_path: Path, model: str, page_size: int, window: int
) -> None:
    report = run_model(
        tmp_path / "run.db", model=model, page_size=page_size, window=window, requests=60, seed=1
    )
    assert_right(report, requests=60)
    assert report.recoveries_locked > 0
    assert report.evicted_full > 0
    assert report.evicted_swa > 0
    assert report.tombstones > 0
    assert report.slid_tokens > 0
    assert report.hit_tokens > 0


class DecodingUnderRecovery:
    """Counts the requests that decode on a node's Full after somebody else recovered it.

    Looks from outside, at what the cache journals and at the batches that the model gets.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._running: dict[str, Pages] = {}
        self._recovered: list[tuple[str, Pages]] = []
        self.recoveries = 0
        self.decoded: Counter[str] = Counter()
        append, run = TapSink.append, ModelForward.run

        def appended(sink: TapSink, transaction: TransactionRecord) -> None:
            append(sink, transaction)
            self._hear(transaction)

        def ran(forward: ModelForward, batch: Sequence[Work]) -> None:
            self._look(batch)
            run(forward, batch)

        monkeypatch.setattr(TapSink, "append", appended)
        monkeypatch.setattr(ModelForward, "run", ran)

    def _hear(self, transaction: TransactionRecord) -> None:
        for event in transaction.events:
            if isinstance(event, SwaRecovered) and event.mode is RecoveryMode.KEEP_LOCKED_FULL:
                holders = [
                    name
                    for name, pages in self._running.items()
                    if name != transaction.request_id and np.isin(event.node_full, pages).all()
                ]
                self._recovered += [(name, event.node_full) for name in holders]

    def _look(self, batch: Sequence[Work]) -> None:
        rows = {work.job.name: work.job.row[: work.end] // 4 for work in batch}
        decoding = {work.job.name for work in batch if work.start >= len(work.job.spec.prompt)}
        waiting = []
        for name, kept in self._recovered:
            if name in decoding and np.isin(kept, rows[name]).all():
                self.recoveries += 1
                self.decoded[name] += 1
            elif name in rows:
                waiting.append((name, kept))
        self._recovered = waiting
        self._running = {name: rows[name] for name in rows if name in decoding}


@pytest.mark.parametrize("model", ["gemma3-tiny", "gemma2-tiny"])
def test_requests_go_on_decoding_on_nodes_that_others_recover_under_their_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    seen = DecodingUnderRecovery(monkeypatch)
    report = run_model(tmp_path / "run.db", model=model, requests=200)
    assert_right(report, requests=200)
    assert seen.recoveries >= 20
    assert len(seen.decoded) >= 5
    assert report.audit.counts.recoveries_under_lock == report.recoveries_locked >= 20
    assert report.retractions > 0
    assert report.refreshes > 0
    assert report.branch_points > 0


def test_skipping_locked_recovery_keeps_logits_right_and_costs_hits(tmp_path: Path) -> None:
    remap = run_model(tmp_path / "remap.db", requests=100)
    skip = run_model(tmp_path / "skip.db", requests=100, locked_recovery="skip")
    assert_right(remap, requests=100)
    assert_right(skip, requests=100)
    assert remap.recoveries_locked > 0 == skip.recoveries_locked
    assert skip.refused > 0 == remap.refused
    assert skip.hit_ratio < remap.hit_ratio


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("model", ["gemma3-tiny", "gemma2-tiny"])
def test_logits_on_a_device_are_those_of_the_model_run_alone_there(tmp_path: Path, model: str) -> None:
    report = run_model(tmp_path / "run.db", model=model, requests=60, device="cuda")
    assert_right(report, requests=60)
