"""A real model from the command line: what a run reports, what it exits with, and what it needs."""

import importlib.metadata
import json
from pathlib import Path
from typing import Any

import pytest

from kvledger.core.insertion import Insertion
from kvledger.tools.cli import main
from tests.support.old_recovery import replace_full_whoever_reads_it

RUN = ("run", "--engine", "transformers", "--durability", "background")


def answered(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    status = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return status, out, err


def documented(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    status, out, err = answered(capsys, *arguments, "--json")
    assert (status, err) == (0, "")
    return json.loads(out)


@pytest.mark.parametrize("model", ["gemma3-tiny", "gemma2-tiny"])
def test_a_run_with_a_model_reports_its_logits_in_place_of_the_kv_check(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, model: str
) -> None:
    report = documented(capsys, *RUN, "--model", model, "--requests", 15, "--db", tmp_path / "run.db")
    logits = report["logits"]
    assert (logits["model"], logits["dtype"], logits["bar"], logits["wrong"]) == (model, "float32", 1e-4, 0)
    assert 0 < logits["mean"] < logits["largest"] < 1e-4
    assert logits["requests"] > 10
    assert report["kv_reads"] is report["kv_wrong"] is None
    assert report["audit"]["verdict"] == "pass"


def test_a_run_with_a_model_prints_what_was_compared(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    status, out, err = answered(
        capsys, *RUN, "--requests", 6, "--page-size", 1, "--window", 20, "--db", tmp_path / "run.db"
    )
    assert (status, err) == (0, "")
    assert "positions against gemma3-tiny run alone (float32)" in out
    assert "0 requests by more than 0.0001; largest" in out
    assert "KV read" not in out


@pytest.mark.interpreted
def test_wrong_logits_are_a_violation(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Insertion, "_recover", replace_full_whoever_reads_it)
    status, out, err = answered(capsys, *RUN, "--requests", 60, "--db", tmp_path / "run.db")
    assert (status, err) == (1, "")
    assert "times no number from the model run alone" in " ".join(out.split())


def test_a_run_that_verifies_nothing_compares_no_logits(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    report = documented(capsys, *RUN, "--requests", 6, "--no-verify-kv", "--db", tmp_path / "run.db")
    assert report["logits"] is None
    assert report["kv_reads"] is None


def test_a_trace_is_thinned_for_the_model(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    lines = [
        {"timestamp": 10 * number, "input_length": 1500, "output_length": 200, "hash_ids": [0, 1, 2 + number]}
        for number in range(4)
    ]
    trace = tmp_path / "trace.jsonl"
    trace.write_text("".join(json.dumps(line) + "\n" for line in lines))
    report = documented(capsys, *RUN, "--trace", trace, "--requests", 4, "--db", tmp_path / "run.db")
    assert report["prompt_tokens"] == 4 * 24
    assert report["logits"]["wrong"] == 0


def missing(name: str) -> str:
    raise importlib.metadata.PackageNotFoundError(name)


@pytest.mark.parametrize("command", [("run", "--engine", "transformers"), ("bench", "provenance")])
@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        pytest.param(
            missing, "transformers is not installed: pip install 'kvledger[engine]' brings 5.24.x", id="none"
        ),
        pytest.param(
            lambda name: "4.57.1",
            "transformers 4.57.1 is installed, tested is 5.24.x only: pip install 'kvledger[engine]'",
            id="another version",
        ),
    ],
)
def test_without_a_tested_transformers_there_is_one_line_and_status_2(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
    found: Any,
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("kvledger.tools.engine.library.version", found)
    status, out, err = answered(capsys, *command)
    assert (status, out) == (2, "")
    assert err.startswith(f"kvledger: {sentence}")
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_bench_provenance_sets_requests_that_read_mixed_nodes_beside_those_that_read_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report = documented(capsys, "bench", "provenance", "--requests", 25, "--seed", 1)
    assert report["recoveries_locked"] > 0
    assert report["transformers"].startswith("5.24.")
    figures = {(figure["dtype"], figure["read"]): figure for figure in report["figures"]}
    assert len(figures) == 8
    for dtype in ("float32", "bfloat16"):
        mixed, in_window, others, apart = (
            figures[dtype, read]
            for read in (
                "mixed nodes",
                "of these, SWA of them",
                "no mixed node",
                "the first, nothing shared",
            )
        )
        assert mixed["requests"] > in_window["requests"] > 0
        assert mixed["positions"] > in_window["positions"] > 0
        assert others["requests"] > 0
        assert mixed["requests"] + others["requests"] <= 25
        assert apart["positions"] > 0
        assert mixed["nans"] == others["nans"] == apart["nans"] == 0
    for read in ("mixed nodes", "of these, SWA of them", "no mixed node", "the first, nothing shared"):
        assert 0 < figures["float32", read]["mean"] < figures["float32", read]["largest"] < 1e-4


def test_bench_provenance_prints_a_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = answered(capsys, "bench", "provenance", "--model", "gemma2-tiny", "--requests", 10)
    assert (status, err) == (0, "")
    assert "gemma2-tiny, built-in, seed 0: 10 requests" in out
    assert "bfloat16, no mixed node" in out


@pytest.mark.parametrize("engine", ["synthetic", "transformers"])
def test_a_run_with_fingerprints_says_how_many_pages_were_compared(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, engine: str
) -> None:
    path = tmp_path / "run.db"
    arguments = ("run", "--engine", engine, "--fingerprints", "--requests", 12, "--db", path)
    status, out, err = answered(capsys, *arguments)
    assert (status, err) == (0, "")
    assert "pages fingerprinted" in " ".join(out.split())
    verdict = documented(capsys, "audit", path)
    assert verdict["counts"]["pages_fingerprinted"] > verdict["counts"]["pages_compared"] > 0
    assert {one["status"] for one in verdict["invariants"] if one["id"] == "locked-content"} == {"verified"}


def test_fingerprints_of_a_run_that_writes_no_kv_are_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    arguments = ("run", "--fingerprints", "--no-verify-kv", "--requests", 2, "--db", tmp_path / "run.db")
    status, out, err = answered(capsys, *arguments)
    assert (status, out) == (2, "")
    assert "without a layout" in err
