"""The benchmarks of the journal measure what they say, on a workload small enough for a test."""

import json
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kvledger.journal import Journal
from kvledger.journal.codec import encode_all
from kvledger.journal.recorder import Recorder
from kvledger.tools.bench import fingerprints, inspect, journal, scale, trace
from kvledger.tools.bench.recording import pages_named, recorded, serve, traffic
from kvledger.tools.cli import main

SMALL = ("--requests", "6", "--repeats", "2", "--seed", "3")


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


class Measured:
    """A benchmark's report, as JSON and as the page that people read, of one measurement."""

    def __init__(
        self, capsys: pytest.CaptureFixture[str], module: ModuleType, name: str, *arguments: str
    ) -> None:
        measure = getattr(module, name)
        reports: list[Any] = []

        def measured(*given: Any, **named: Any) -> Any:
            if not reports:
                reports.append(measure(*given, **named))
            return reports[0]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, name, measured)
            self.report: Any = json.loads(printed(capsys, *arguments, "--json"))
            self.page = printed(capsys, *arguments)
        assert len(reports) == 1, "the command measures something else"


def test_bench_journal_tells_rates_and_bytes_of_writing_and_reading(
    capsys: pytest.CaptureFixture[str],
) -> None:
    measured = Measured(capsys, journal, "bench_journal", "bench", "journal", *SMALL)
    assert "built-in, seed 3: 6 requests" in measured.page
    assert "replay + audit" in measured.page
    report = measured.report
    assert {"cpu", "python", "versions"} <= report["environment"].keys()
    assert report["requests"] == 6
    assert report["events"] > report["transactions"] > 0
    assert report["pages"] > report["events"]
    assert 50 < report["payload_bytes_per_event"] < report["file_bytes_per_event"]
    works = [figure["work"] for figure in report["figures"]]
    assert works == ["write", "write + checkpoints", "replay", "replay + audit", "verify the chain"]
    for figure in report["figures"]:
        assert figure["events_per_cpu_second"] > 0
        assert figure["cpu_p99_us"] >= figure["cpu_median_us"] > 0


STEPS = ["read", "decode", "fold", "replay", "replay + audit", "verify the chain"]


def test_bench_replay_tells_each_step_of_reading_a_journal_back_at_every_page_size(
    capsys: pytest.CaptureFixture[str],
) -> None:
    report: Any = json.loads(printed(capsys, "bench", "replay", *SMALL, "--requests", "3", "--json"))
    assert {"cpu", "python", "versions"} <= report["environment"].keys()
    assert [journal["page_size"] for journal in report["journals"]] == [64, 1]
    coarse, fine = report["journals"]
    assert fine["events"] > coarse["events"] > coarse["transactions"] > 0
    assert fine["pages"] / fine["events"] > coarse["pages"] / coarse["events"] > 1
    assert [(figure["page_size"], figure["work"]) for figure in report["figures"]] == [
        (size, step) for size in (64, 1) for step in STEPS
    ]
    for figure in report["figures"]:
        assert figure["pages_per_second"] > figure["events_per_second"] > 0
        assert figure["p99_us"] >= figure["median_us"] > 0
        assert figure["ratio"] > 0
    assert [f["ratio"] for f in report["figures"] if f["work"] == "replay"] == [1.0, 1.0]


def test_bench_replay_takes_a_journal_that_is_there_and_leaves_it_as_it_was(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with Journal.open(tmp_path / "run.db") as journal, journal.record() as recorder:
        for transaction in recorded(traffic(trace=None, requests=4, seed=3)):
            recorder.append(transaction)
    with Journal.open(tmp_path / "run.db") as journal:
        head = journal.reader().head()
    shown = printed(capsys, "bench", "replay", "--db", str(tmp_path / "run.db"), "--repeats", "1", "--json")
    report: Any = json.loads(shown)
    assert [(one["page_size"], one["events"]) for one in report["journals"]] == [(16, head.seq)]
    assert [figure["work"] for figure in report["figures"]] == STEPS
    with Journal.open(tmp_path / "run.db") as journal:
        assert journal.reader().head() == head
        assert list(journal.verify(anchor=head)) == []


def test_bench_replay_prints_a_table_for_people_and_refuses_an_empty_journal(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    shown = printed(capsys, "bench", "replay", "--page-size", "32", "--requests", "3", "--repeats", "1")
    assert "pages of 32" in shown
    assert "replay + audit" in shown
    with Journal.open(tmp_path / "empty.db") as journal:
        journal.record().close()
    assert main(["bench", "replay", "--db", str(tmp_path / "empty.db")]) == 2
    assert "nothing to replay" in capsys.readouterr().err


def test_bench_trace_tells_a_ratio_for_each_way_of_recording(capsys: pytest.CaptureFixture[str]) -> None:
    measured = Measured(capsys, trace, "bench_trace", "bench", "trace", *SMALL)
    assert "built-in, seed 3: 6 requests" in measured.page
    assert "background" in measured.page
    report = measured.report
    figures = {figure["journaling"]: figure for figure in report["figures"]}
    assert list(figures) == ["off", "memory", "background", "step", "apart"]
    ratios = ("cpu_ratio", "wall_ratio", "thread_ratio", "process_ratio")
    assert [figures["off"][ratio] for ratio in ratios] == [1.0] * 4
    assert all(figure["cpu_ratio"] > 0 for figure in figures.values())
    assert figures["step"]["flush_cpu_seconds"] > 0 == figures["background"]["flush_cpu_seconds"]
    assert report["calls"] > 0
    assert report["events"] > 0
    for figure in figures.values():
        # The process does all that the scheduler's thread does, and that includes calls and flushes.
        assert figure["process_us_per_request"] > figure["thread_us_per_request"] > 0


def test_bench_trace_counts_what_the_writer_does_after_the_last_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Clock:
        """The process's clock: an hour passes while a recorder is closed."""

        def __init__(self) -> None:
            self.ns = 0

        def process_time_ns(self) -> int:
            return self.ns

        def __getattr__(self, name: str) -> Any:
            return getattr(time, name)

    clock = Clock()
    close = Recorder.close

    def closing(recorder: Recorder) -> None:
        clock.ns += 3_600 * 10**9
        close(recorder)

    def serving(*given: Any, **named: Any) -> None:
        clock.ns += 60 * 10**9
        serve(*given, **named)

    # The last way is not asked about, and starts a process.
    monkeypatch.setattr(trace, "WAYS", ("off", "memory", "background", "step"))
    monkeypatch.setattr(trace, "time", clock)
    monkeypatch.setattr(trace, "serve", serving)
    monkeypatch.setattr(Recorder, "close", closing)
    report = trace.bench_trace(traffic(trace=None, requests=6, seed=3), repeats=1)
    found = {figure.journaling: figure for figure in report.figures}
    assert found["off"].process_us_per_request == found["memory"].process_us_per_request == 1e7
    assert found["background"].process_us_per_request == found["step"].process_us_per_request == 61e7
    assert found["background"].process_ratio == 61.0
    with_flush = found["step"].cpu_seconds + found["step"].flush_cpu_seconds
    assert found["step"].thread_us_per_request == pytest.approx(with_flush * 1e6 / 6, abs=20)


def test_bench_inspect_tells_how_fast_the_past_is_and_no_more_where_no_load_is_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    small = ("--events", "400", "--questions", "8", "--requests", "3", "--repeats", "0", "--seed", "3")
    measured = Measured(capsys, inspect, "bench_inspect", "bench", "inspect", *small)
    past = measured.report["past"]
    assert past["events"] > 200
    assert past["nodes"] > 0
    assert past["worst_ms"] >= past["p99_ms"] >= past["median_ms"] > 0
    assert measured.report["looks"] == measured.report["loads"] == []
    assert "past seqs" in measured.page
    assert "wall ratio" not in measured.page


def test_bench_inspect_tells_what_watching_costs_and_no_more_where_no_past_is_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    small = ("--events", "0", *SMALL, "--rate", "40")
    measured = Measured(capsys, inspect, "bench_inspect", "bench", "inspect", *small)
    assert "past seqs" not in measured.page
    assert "wall ratio" in measured.page
    assert "built-in, seed 3: 6 requests" in measured.page
    report = measured.report
    assert report["past"] is None
    looks = {figure["way"]: figure for figure in report["looks"]}
    assert list(looks) == ["off", "attached", "asked"]
    assert looks["off"]["wall_ratio"] == looks["off"]["cpu_ratio"] == 1.0
    assert all(figure["wall_ratio"] > 0 for figure in looks.values())
    assert len(report["loads"]) == report["repeats"] == 2
    for load in report["loads"]:
        # Before the scheduler's first transaction is stored there is nothing to show.
        assert set(load["statuses"]) <= {"200", "409"}
        assert sum(load["statuses"].values()) == load["answered"]


def test_the_same_seed_measures_the_same_events() -> None:
    first, again, other = (recorded(traffic(trace=None, requests=4, seed=seed)) for seed in (3, 3, 4))
    assert encode_all(one for record in first for one in record.events) == encode_all(
        one for record in again for one in record.events
    )
    assert pages_named(first) == pages_named(again) != pages_named(other)


def test_bench_fingerprints_tells_a_ratio_and_what_each_page_adds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fingerprints, "LENGTHS", (64, 128))
    report: Any = json.loads(printed(capsys, "bench", "fingerprints", "--repeats", "2", "--json"))
    cases = [(figure["page_size"], figure["tokens"], figure["pages"]) for figure in report["figures"]]
    assert cases == [(16, 64, 4), (16, 128, 8), (64, 64, 1), (64, 128, 2)]
    for figure in report["figures"]:
        assert figure["page_bytes"] == 8192 * figure["page_size"]
        assert figure["off_us"] > 0
        assert figure["on_us"] > 0
        # Both are printed to a tenth: the ratio lies between what may round so.
        on, off = figure["on_us"], figure["off_us"]
        assert (on - 0.06) / (off + 0.06) - 0.01 <= figure["ratio"] <= (on + 0.06) / (off - 0.06) + 0.01
    shown = printed(capsys, "bench", "fingerprints", "--repeats", "1")
    assert "4 Full and 4 SWA layers, 4 heads of 64, bfloat16 on cpu" in shown
    assert "added" in shown


def test_bench_scale_tells_a_ratio_for_each_size_of_tree_pool_and_context(
    capsys: pytest.CaptureFixture[str],
) -> None:
    small = ("bench", "scale", "--nodes", "1200", "--repeats", "3")
    measured = Measured(capsys, scale, "bench_scale", *small)
    report = measured.report

    assert [figure["nodes"] for figure in report["requests"]] == [1_000, 1_000, 1_200]
    pools = [figure["full_tokens"] for figure in report["requests"]]
    assert pools[1] == 10 * pools[0]
    assert report["requests"][0]["ratio"] == report["rollbacks"][0]["ratio"] == 1.0
    assert [figure["context_tokens"] for figure in report["rollbacks"]] == [2_048, 131_072]
    assert all(f["median_us"] > 0 for f in [*report["requests"], *report["rollbacks"]])
    assert "rollback under a context of" in measured.page


def test_bench_memory_tells_bytes_a_node_and_a_token_and_names_what_does_not_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    small = ("bench", "memory", "--page-size", "64", "--nodes", "2000")
    report: Any = json.loads(printed(capsys, *small, "--json"))

    (figure,) = report["figures"]
    assert (figure["system"], figure["page_size"], figure["nodes"]) == ("kvledger", 64, 2_000)
    # Four bytes are the token itself, and memory comes in pages; a node is some objects of Python.
    assert figure["bytes_per_token"] > 1
    assert 100 < figure["bytes_per_node"] < 10_000

    assert main([*small, "--system", "nobody"]) == 2
    assert "nobody could not be measured" in capsys.readouterr().err
