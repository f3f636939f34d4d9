"""Faults of cache or engine, put in one at a time: a model that reads the wrong KV has the wrong logits.

What is freed holds NaN, so a read of a slot that is nobody's cannot pass for a small difference.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvledger.core import CacheConfig
from kvledger.core.device_pools import DevicePools
from kvledger.core.errors import InvalidArgument
from kvledger.core.insertion import Insertion
from kvledger.core.pools import PoolChanges
from kvledger.tools.engine.forward import FittedModel
from kvledger.tools.engine.hybrid import layout_of_model
from kvledger.tools.engine.models import WINDOW
from tests.support import engine as engine_module
from tests.support.engine import EngineByHand, run_model, text
from tests.support.old_recovery import replace_full_whoever_reads_it


@pytest.mark.interpreted
@pytest.mark.parametrize("model", ["gemma3-tiny", "gemma2-tiny"])
def test_replacing_locked_full_shows_in_the_running_requests_logits_and_in_the_audit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    monkeypatch.setattr(Insertion, "_recover", replace_full_whoever_reads_it)
    report = run_model(tmp_path / "run.db", model=model)
    assert report.stopped is None
    assert not report.passed

    assert report.logits is not None
    assert report.logits.wrong > 0
    assert report.logits.nans > 0
    broken = [finding for finding in report.audit.findings if finding.invariant == "locked-full"]
    assert broken
    assert all(finding.seq and finding.node and finding.pages for finding in broken)
    # The audit names who held the lock, and that request's logits are among the wrong ones.
    holders = {name for finding in broken for name in finding.holders}
    assert any(f"request {name}:" in told for name in holders for told in report.logits.findings)


def end_of_a_window(engine: EngineByHand, page_size: int) -> tuple[int, float, int]:
    """Serve a prompt, then one that shares exactly window + page tokens of it.

    The first one slid, so what stands before its last window is a tombstone. Returns how much the second one
    reused, and how far its logits were off.
    """
    shared = WINDOW + page_size
    first = text(1, shared + 1)
    assert engine.serve("first", first).first is None
    second = engine.open("second", np.concatenate([first[:shared], text(2, 20)]))
    reused = second.live.prefix_len
    engine.compute(engine.work(second))
    second.live.finish()
    off = engine.settle(second)
    return reused, off.largest, off.nans


@pytest.mark.parametrize("model", ["gemma3-tiny", "gemma2-tiny", "gpt-oss-tiny"])
@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_a_prompt_that_shares_exactly_a_window_and_a_page_reads_a_window_and_no_more(
    model: str, page_size: int
) -> None:
    engine = EngineByHand(model=model, page_size=page_size)
    reused, largest, nans = end_of_a_window(engine, page_size)
    assert (reused, nans) == ((WINDOW + page_size) // page_size * page_size, 0)
    assert largest < 1e-4
    # Where pages are single tokens the first one is a tombstone, and the match has no token to spare.
    if page_size == 1:
        assert [node.swa_slots is None for node in engine.cache.nodes() if node.start == 0] == [True]


def test_a_cache_whose_window_is_one_short_lets_go_of_a_token_that_the_model_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unchecked(model: Any, config: CacheConfig) -> FittedModel:
        return FittedModel(model, config, layout_of_model(model), WINDOW)

    monkeypatch.setattr(engine_module, "fit", unchecked)
    engine = EngineByHand(page_size=1, cache_window=WINDOW - 1)
    reused, _, nans = end_of_a_window(engine, 1)
    assert (reused, nans) == (WINDOW + 1, 1)


def test_an_engine_refuses_a_cache_whose_window_is_one_short() -> None:
    with pytest.raises(InvalidArgument, match=r"attends to 15 earlier tokens.*keeps 14"):
        EngineByHand(cache_window=WINDOW - 1)


def test_a_row_that_was_not_patched_after_a_commit_reads_freed_slots() -> None:
    engine = EngineByHand()
    prompt = text(3, 40)
    one, two = engine.open("one", prompt), engine.open("two", prompt)
    engine.compute(engine.work(one, 36), publish=True)
    engine.compute(engine.work(two, 36))
    assert two.live.commit().row_changed == [(0, 36)]
    # Patched within the window alone: what is stale is read by the Full layers and nobody else.
    two.row[16:36] = two.live.slots_of(16, 36)
    engine.compute(engine.work(two))
    off = engine.settle(two)
    assert (off.nans, off.first) == (1, 39)


def test_a_mapping_that_never_reached_the_device_reads_the_padding_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = DevicePools.commit

    def losing(pools: DevicePools, changes: PoolChanges) -> None:
        before = pools.mapping.clone()
        commit(pools, changes)
        pools.mapping.copy_(before)

    engine = EngineByHand()
    monkeypatch.setattr(DevicePools, "commit", losing)
    # Writes look in the mirror as well: what they store goes to the padding page, where all tokens meet.
    job = engine.open("one", text(4, 30))
    engine.compute(engine.work(job))
    assert engine.settle(job).first == 29


def test_the_rest_of_a_page_that_was_evicted_and_handed_out_at_once_holds_no_number() -> None:
    engine = EngineByHand(page_size=16, full_tokens=32, swa_tokens=32)
    engine.serve("before", text(5, 32))
    old = np.concatenate([node.full_slots for node in engine.cache.nodes()])
    assert len(old) == 32
    pool = engine.cache.pool
    assert not pool.k[0].isnan()[engine.cache.swa_slots(old)].any()

    after = engine.open("after", text(6, 20))
    engine.compute(engine.work(after))
    begun = after.row[16:20]
    assert (begun // 16)[0] in old // 16
    rest = np.arange(begun[-1] + 1, begun[0] + 16)
    for layer in pool.k:
        slots = engine.cache.swa_slots(rest) if pool.is_swa(layer) else rest
        assert pool.k[layer][slots].isnan().all()
        assert pool.v[layer][slots].isnan().all()
    assert engine.settle(after).first is None


def test_one_requests_wrong_read_leaves_the_logits_of_its_batch_alone() -> None:
    engine = EngineByHand()
    good, bad = engine.open("good", text(7, 24)), engine.open("bad", text(8, 24))
    engine.compute(engine.work(good, 23), engine.work(bad, 23))
    bad.row[3] = 0
    engine.compute(engine.work(good), engine.work(bad))
    assert engine.settle(good).first is None
    assert engine.settle(bad).nans == 1
