"""What locked pages hold, proved by a journal: the old recovery, and bytes that somebody overwrites.

An overwritten page leaves no event: all other invariants hold, and only fingerprints tell.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvledger.core import CacheConfig, HybridCache, KVLayout
from kvledger.core.insertion import Insertion
from kvledger.core.node import Node
from kvledger.journal import Journal
from kvledger.journal.audit import Verdict, audit
from kvledger.journal.export import export_journal
from kvledger.tools.audit.evidence import Evidence, audit_stored
from kvledger.tools.embed.transformers import shared_prefixes
from kvledger.tools.engine.forward import ModelForward
from kvledger.tools.run.presets import BUILTIN
from kvledger.tools.run.report import RunReport
from kvledger.tools.run.runner import RunSetup, run_workload
from kvledger.tools.scheduler.forward import SyntheticForward, Work
from kvledger.tools.workload import builtin_workload
from tests.support.batching import prompts_with_heads, run_batching, tiny_model
from tests.support.engine import run_model
from tests.support.hand_written import broken, first_of
from tests.support.old_recovery import replace_full_whoever_reads_it

LAYOUT = KVLayout(full_layers=(0, 2), swa_layers=(1, 3), kv_heads=1, head_dim=2)
PAGE = 4


def run_synthetic(database: Path, **more: Any) -> RunReport:
    """The built-in workload with synthetic KV, fingerprinted."""
    setup = RunSetup(
        config=BUILTIN.config(layout=BUILTIN.layout, fingerprints=True, **more),
        settings=BUILTIN.settings,
        database=str(database),
        name="content",
        durability="background",
    )
    return run_workload(setup, builtin_workload(60, seed=0))


def run_with_model(database: Path, **more: Any) -> RunReport:
    """The same, thinned, with a real model's KV."""
    return run_model(database, fingerprints=True, requests=40, **more)


ENGINES = pytest.mark.parametrize("run", [run_synthetic, run_with_model])


@ENGINES
@pytest.mark.parametrize("policy", ["remap", "skip"])
def test_a_healthy_run_changes_nothing_in_locked_pages(run: Any, policy: str, tmp_path: Path) -> None:
    report = run(tmp_path / "run.db", locked_recovery=policy)
    assert report.passed
    counts = report.audit.counts
    assert (counts.recoveries_under_lock > 0) is (policy == "remap")
    assert counts.pages_compared > 500
    assert {one.status for one in report.audit.invariants if one.id == "locked-content"} == {"verified"}


@pytest.mark.interpreted
@ENGINES
def test_the_old_recovery_is_told_by_fingerprints_and_by_the_audit_with_node_and_seq(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Insertion, "_recover", replace_full_whoever_reads_it)
    report = run(tmp_path / "run.db")
    assert report.stopped is None
    content = [one for one in report.audit.findings if one.invariant == "locked-content"]
    full = [one for one in report.audit.findings if one.invariant == "locked-full"]
    assert content
    assert all(one.seq and one.node and one.pages and one.holders for one in content)
    # Both name the same first node, in the transaction that replaced its pages, and who was reading it.
    assert (content[0].transaction, content[0].node) == (full[0].transaction, full[0].node)
    assert content[0].holders == full[0].holders
    assert "other Full pages than when it was locked" in content[0].sentence
    if report.logits is not None:
        assert report.logits.wrong > 0
        holders = {name for one in content for name in one.holders}
        assert any(f"request {name}:" in told for name in holders for told in report.logits.findings)
    else:
        assert report.kv_wrong


class Vandal:
    """Writes into the tensors of one locked page in the middle of a run, past every door of the pool."""

    def __init__(self, forward: Any, *, batch: int) -> None:
        self.node: Node | None = None
        self._run, self._batch, self._batches = forward.run, batch, 0

    def run(self, forward: Any, batch: Sequence[Work]) -> None:
        self._run(forward, batch)
        self._batches += 1
        if self._batches >= self._batch and self.node is None:
            state = forward._cache._state
            locked = [node for node in state.nodes.values() if node.full_lock and node.parent.parent is None]
            self.node = max(locked, key=lambda node: node.full_lock, default=None)
            if self.node is not None:
                pool = forward._cache.pool
                layer = next(layer for layer in pool.k if not pool.is_swa(layer))
                pool.k[layer][int(self.node.full[0]) * state.page_size] += 1.0


@pytest.mark.parametrize(
    ("run", "forward"), [(run_synthetic, SyntheticForward), (run_with_model, ModelForward)]
)
def test_overwritten_kv_of_a_locked_page_is_seen_by_fingerprints_alone(
    run: Any, forward: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vandal = Vandal(forward, batch=40)
    monkeypatch.setattr(forward, "run", lambda self, batch: vandal.run(self, batch))
    report = run(tmp_path / "run.db")
    assert vandal.node is not None
    assert broken(report.audit) == {"locked-content"}
    found = first_of(report.audit, "locked-content")
    assert found.pages == (int(vandal.node.full[0]),)
    assert found.holders
    assert "the Full KV of a locked node is not what it was at seq" in found.sentence


def write_behind_a_lock(store: Path | str, *, layer: int, **recording: Any) -> tuple[Verdict, dict[str, Any]]:
    """A number of a page changes in `layer` while a request holds it locked: the verdict, and which page."""
    config = CacheConfig(
        page_size=PAGE, sliding_window=8, full_tokens=64, swa_tokens=64, layout=LAYOUT, fingerprints=True
    )
    tokens = np.arange(13, dtype=np.int32)
    with Journal.open(store, create=True) as journal:
        with journal.record(name="content", **recording) as recorder:
            cache = HybridCache(config, sink=recorder)
            first = cache.open_request("writer", tokens)
            first.extend(13)
            first.computed()
            first.finish()
            reader = cache.open_request("reader", tokens)
            reader.extend(1)
            (node,) = [node for node in cache.nodes() if node.start == PAGE]
            slot = int(node.full_slots[0]) if layer % 2 == 0 else int(cache.swa_slots(node.full_slots[:1])[0])
            cache.pool.v[layer][slot, 0, 0] += 1.0
            reader.computed()
            reader.finish()
            cache.checkpoint()
        reader_of = journal.reader(recorder.journal_id)
        verdict = audit(reader_of, chain=journal.verify(recorder.journal_id))
        export_journal(reader_of, Path(store).parent / "exported")
    return verdict, {"node": int(node.id), "page": int(node.full_slots[0]) // PAGE}


@pytest.mark.parametrize(("layer", "side"), [(0, "Full"), (2, "Full"), (1, "SWA"), (3, "SWA")])
def test_one_changed_number_in_any_layer_is_found(layer: int, side: str, tmp_path: Path) -> None:
    verdict, known = write_behind_a_lock(tmp_path / "run.db", layer=layer)
    assert broken(verdict) == {"locked-content"}
    (found,) = verdict.findings
    assert (found.request, found.node, found.pages) == ("reader", known["node"], (known["page"],))
    assert found.sentence.startswith(f"the {side} KV")


@pytest.mark.parametrize(
    "policy", [{"tokens": "full"}, {"tokens": "hash", "key": b"k" * 16}, {"tokens": "none"}]
)
def test_evidence_is_the_same_under_every_token_policy_and_in_exported_files(
    policy: dict[str, Any], tmp_path: Path
) -> None:
    verdict, known = write_behind_a_lock(tmp_path / "run.db", layer=0, **policy)
    assert broken(verdict) == {"locked-content"}
    for where in (tmp_path / "run.db", tmp_path / "exported"):
        again = audit_stored(Evidence(str(where)))
        assert again.findings == verdict.findings
        assert again.counts == verdict.counts
    assert verdict.findings[0].node == known["node"]


def test_kv_that_a_scheduler_of_transformers_computes_is_fingerprinted_too(tmp_path: Path) -> None:
    model = tiny_model("gemma3", 18)
    sizes: dict[str, Any] = {"page_size": 4, "full_tokens": 512, "swa_tokens": 256, "fingerprints": True}
    prompts = prompts_with_heads(heads=[44, 30], tails=[6, 9], copies=4)

    def verdict_of(name: str, *, overwrite: bool) -> Verdict:
        def at_batch(batch: int) -> None:
            book = ledger._book
            assert book is not None
            locked = [node for node in book.cache._state.nodes.values() if node.full_lock]
            if overwrite and batch > 6 and locked:
                book.cache.pool.v[1][int(locked[0].full[0]) * 4] += 1.0

        with shared_prefixes(model, **sizes, journal=tmp_path / name) as ledger:
            run_batching(model, prompts, at_batch=at_batch)
        return audit_stored(Evidence(str(tmp_path / name)))

    healthy = verdict_of("healthy.db", overwrite=False)
    assert healthy.passed
    assert healthy.counts.pages_compared > 0
    assert broken(verdict_of("wrong.db", overwrite=True)) == {"locked-content"}
