"""The command line on a recorded run: what each command prints, and what it exits with."""

import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import event

from kvledger.core.commit import insert_own
from kvledger.core.errors import StoreUnavailable
from kvledger.journal import Journal
from kvledger.journal.replay import replay
from kvledger.journal.rows import RowWriter
from kvledger.tools.cli import main

RUN = ["run", "--requests", "25", "--seed", "3", "--durability", "background"]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "run.db"
    assert main([*RUN, "--db", str(path), "--json"]) == 0
    return path


class Shell:
    """Runs commands in this process and keeps what they print."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object) -> tuple[int, str, str]:
        status = main([str(argument) for argument in arguments])
        out, err = self._capsys.readouterr()
        return status, out, err

    def document(self, *arguments: object) -> Any:
        status, out, err = self(*arguments, "--json")
        assert (status, err) == (0, "")
        return json.loads(out)


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys)


def last_seq(database: Path) -> int:
    with Journal.open(database, create=False) as store:
        return store.reader().head().seq


def test_run_prints_its_report_and_the_verdict(shell: Shell, tmp_path: Path) -> None:
    status, out, err = shell(*RUN, "--db", tmp_path / "run.db")
    assert (status, err) == (0, "")
    assert "hit ratio" in out
    assert "under a Full lock" in out
    assert "0 wrong" in out
    assert "audit: pass" in out


def test_run_adds_a_journal_to_a_database_and_leaves_the_others(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    first = shell.document("run", "--requests", "4", "--db", path)
    second = shell.document("run", "--requests", "5", "--db", path)
    assert (first["journal"], second["journal"]) == (1, 2)
    listed = shell.document("show", "journals", path)["journals"]
    assert [(journal["journal"], journal["last_seq"]) for journal in listed] == [
        (1, first["events"]),
        (2, second["events"]),
    ]
    assert shell("show", "journals", path)[1].count("run seed 0") == 2
    assert shell.document("audit", path, "--journal", "1")["counts"]["events"] == first["events"]
    assert shell.document("audit", path)["counts"]["events"] == second["events"]


def test_run_takes_a_trace_and_sizes(shell: Shell, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    line = {"timestamp": 0, "input_length": 900, "output_length": 5, "hash_ids": [0, 1]}
    trace.write_text("".join(json.dumps({**line, "timestamp": i}) + "\n" for i in range(9)), encoding="utf-8")
    sizes = ["--page-size", "8", "--window", "20", "--full-tokens", "4096", "--swa-tokens", "2048"]
    report = shell.document("run", "--trace", trace, "--requests", "6", *sizes, "--db", tmp_path / "t.db")
    assert (report["requests"], report["prompt_tokens"], report["output_tokens"]) == (6, 5_400, 30)
    with Journal.open(tmp_path / "t.db", create=False) as store:
        config = store.reader().info.config
    assert config is not None
    assert (config["page_size"], config["sliding_window"]) == (8, 20)
    assert (config["full_tokens"], config["swa_tokens"]) == (4_096, 2_048)


def test_run_without_verification_reads_no_kv(shell: Shell, tmp_path: Path) -> None:
    report = shell.document("run", "--requests", "4", "--no-verify-kv", "--db", tmp_path / "run.db")
    assert (report["kv_reads"], report["kv_wrong"]) == (None, None)


def test_run_warns_of_requests_that_no_pool_can_hold(shell: Shell, tmp_path: Path) -> None:
    sizes = ["--full-tokens", "1600", "--swa-tokens", "1600"]
    status, out, err = shell("run", "--requests", "40", "--seed", "3", *sizes, "--db", tmp_path / "run.db")
    assert status == 0
    rejected = re.search(r"(\d+) too large for the pools", out)
    assert rejected
    assert err == (f"kvledger: {rejected[1]} of 40 requests were too large for the pools and not served\n")


@pytest.mark.interpreted
def test_run_whose_cache_fails_in_the_middle_reports_it_and_leaves_a_journal_to_audit(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = iter(range(100))

    def failing(*arguments: Any, **named: Any) -> Any:
        if next(commits) == 20:
            raise KeyError("a fault of the cache")
        return insert_own(*arguments, **named)

    monkeypatch.setattr("kvledger.core.commit.insert_own", failing)
    path = tmp_path / "run.db"
    status, out, err = shell("run", "--requests", "40", "--db", path)
    assert (status, err) == (1, "")
    assert re.search(
        r"^stopped in step \d+: KeyError: 'a fault of the cache' \(\S+\.py, line \d+\)$", out, re.M
    )
    assert "audit: pass" in out
    assert shell.document("audit", path)["verdict"] == "pass"
    assert last_seq(path) > 100


@pytest.fixture
def at_most_100_pages() -> Iterator[None]:
    """A disk that is full once a database has a hundred pages."""

    def limit(connection: Any, _record: Any) -> None:
        connection.execute("PRAGMA max_page_count=100").close()

    event.listen(sa.Engine, "connect", limit)
    yield
    event.remove(sa.Engine, "connect", limit)


@pytest.mark.usefixtures("at_most_100_pages")
@pytest.mark.parametrize("durability", ["commit", "step", "background"])
def test_run_whose_disk_is_full_in_the_middle_reports_it_and_audits_what_is_stored(
    shell: Shell, tmp_path: Path, durability: str
) -> None:
    path = tmp_path / "run.db"
    status, out, err = shell("run", "--requests", "200", "--durability", durability, "--db", path)
    assert (status, err) == (1, "")
    assert re.search(r"^stopped in step \d+: JournalError: recording stopped after seq \d+", out, re.M)
    assert "database or disk is full" in " ".join(out.split())
    assert "audit: pass" in out
    assert shell.document("audit", path)["verdict"] == "pass"
    assert last_seq(path) > 50


def test_run_whose_store_takes_nothing_at_all_could_not_run(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*rows: Any) -> None:
        raise StoreUnavailable("the disk is full")

    monkeypatch.setattr(RowWriter, "_commit", full)
    status, out, err = shell("run", "--requests", "40", "--db", tmp_path / "run.db")
    assert (status, out) == (2, "")
    assert "recording stopped after seq 0" in err
    assert "the disk is full" in err


def test_run_without_a_database_writes_one_beside_the_caller(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    report = shell.document("run", "--requests", "3")
    assert report["database"] == "kvledger-run.db"
    assert (tmp_path / "kvledger-run.db").is_file()


def test_audit_passes_a_healthy_journal_by_path_and_by_url(shell: Shell, database: Path) -> None:
    verdict = shell.document("audit", database)
    assert verdict["verdict"] == "pass"
    assert {report["id"] for report in verdict["invariants"]} >= {"locked-full", "row-safety", "chain"}
    statuses = {report["id"]: report["status"] for report in verdict["invariants"]}
    # Nothing in this journal tells what pages hold.
    assert statuses.pop("locked-content") == "not_checked"
    assert set(statuses.values()) == {"verified"}
    assert shell.document("audit", f"sqlite:///{database}") == verdict
    status, out, _ = shell("audit", database)
    assert status == 0
    assert out.startswith("verdict: pass")


def test_audit_of_a_changed_journal_exits_with_1(shell: Shell, database: Path, tmp_path: Path) -> None:
    changed = tmp_path / "changed.db"
    with sqlite3.connect(database) as source, sqlite3.connect(changed) as target:
        source.backup(target)
        cursor = target.execute(
            'UPDATE events SET payload = replace(payload, \'"cause":"window"\', \'"cause":"caller"\')'
        )
        assert cursor.rowcount > 0
    source.close()
    target.close()
    status, out, err = shell("audit", changed, "--json")
    assert (status, err) == (1, "")
    verdict = json.loads(out)
    assert verdict["verdict"] == "fail"
    assert any(finding["invariant"] == "chain" for finding in verdict["findings"])


def test_replay_rebuilds_the_state_at_a_boundary(shell: Shell, database: Path) -> None:
    end = last_seq(database)
    for at in (1, end // 2, end):
        picture = shell.document("replay", database, "--at", at)
        with Journal.open(database, create=False) as store:
            replayed = replay(store.reader().transactions(), upto=at)
        assert picture["seq"] == replayed.seq <= at
        assert picture["digest"] == replayed.state.digest()
        assert picture["nodes"] == len(replayed.state.nodes)
        for pool in (picture["full"], picture["swa"]):
            assert pool["total"] == pool["free"] + pool["tree"] + pool["held"]
    assert shell.document("replay", database)["seq"] == end
    status, out, _ = shell("replay", database)
    assert status == 0
    assert picture["digest"] in out


def test_show_tree_lists_every_node_below_its_namespace(shell: Shell, database: Path) -> None:
    at = last_seq(database) // 2
    tree = shell.document("show", "tree", database, "--at", at)
    assert len(tree["nodes"]) == shell.document("replay", database, "--at", at)["nodes"] > 10
    seen = set()
    for node in tree["nodes"]:
        assert node["parent"] is None or node["parent"] in seen
        seen.add(node["node"])
    one = shell.document("show", "tree", database, "--at", at, "--namespace", "tenant-a", "--reveal-tokens")
    assert [node["namespace"] for node in one["nodes"]].count("tenant-a") == len(one["nodes"]) > 0
    _, out, _ = shell("show", "tree", database, "--at", at)
    assert all(f"node {node['node']} [{node['start']}, {node['end']})" in out for node in tree["nodes"])
    assert out.count("tombstone") == sum(node["tombstone"] for node in tree["nodes"]) > 0


def test_show_node_slot_and_request_agree_on_who_reads_what(shell: Shell, database: Path) -> None:
    at = last_seq(database) // 2
    nodes = shell.document("show", "tree", database, "--at", at)["nodes"]
    locked = next(node for node in nodes if node["full_lock"])
    node = shell.document("show", "node", database, locked["node"], "--at", at)
    assert {name: node[name] for name in locked} == locked
    assert len(node["holders"]) == locked["full_lock"]
    page_size = shell.document("replay", database, "--at", at)["page_size"]
    slot = locked["full_pages"][0] * page_size + 1
    picture = shell.document("show", "slot", database, slot, "--at", at)
    assert (picture["place"], picture["node"]) == ("tree", locked["node"])
    assert picture["position"] == locked["start"] + 1
    assert len(picture["read_by"]) == locked["full_lock"]
    reader = shell.document("show", "request", database, picture["read_by"][0], "--at", at)
    assert reader["row_pages"][picture["position"] // page_size] == picture["page"]
    assert reader["protected"] > picture["position"]
    own = reader["row_pages"][-1] * page_size
    held = shell.document("show", "slot", database, own, "--at", at)
    if reader["protected"] < reader["row_tokens"]:
        assert (held["place"], held["request"]) == ("request", reader["request"])
    everybody = shell.document("show", "requests", database, "--at", at)["requests"]
    assert reader in everybody
    assert {request["request"] for request in everybody} >= set(picture["read_by"])
    _, out, _ = shell("show", "requests", database, "--at", at)
    assert all(f"{request['request']} in namespace" in out for request in everybody)
    for kind, name in (("node", locked["node"]), ("slot", slot), ("request", reader["request"])):
        status, out, err = shell("show", kind, database, name, "--at", at)
        assert (status, err) == (0, "")
        assert str(name) in out.replace(",", "")


def test_show_slot_tells_free_slots_from_held_ones(shell: Shell, database: Path) -> None:
    at = last_seq(database) // 2
    places = {
        shell.document("show", "slot", database, 16 * page, "--at", at)["place"]
        for page in (*range(1, 200, 9), 1_536)
    }
    assert {"free", "tree"} <= places


def test_bench_ops_prints_every_operation_with_its_environment(shell: Shell) -> None:
    report = shell.document("bench", "ops", "--repeats", "1")
    assert {"cpu", "python", "versions"} <= report["environment"].keys()
    figures = report["figures"]
    assert {figure["operation"] for figure in figures} >= {
        "match",
        "acquire + release",
        "alloc",
        "insert",
        "evict",
        "commit",
        "whole request",
    }
    cases = {(f["operation"], f["page_size"], f["tokens"], f["journaling"]) for f in figures}
    assert len(cases) == len(figures) == 2 * 2 * (6 * 2 + 1)


PROGRAM = [sys.executable, "-m", "kvledger.tools"]


def test_a_terminal_sees_progress_on_stderr_and_stdout_stays_clean(tmp_path: Path) -> None:
    terminal, its_end = os.openpty()
    with subprocess.Popen(
        [*PROGRAM, "run", "--requests", "8", "--db", str(tmp_path / "run.db"), "--json"],
        stdout=subprocess.PIPE,
        stderr=its_end,
        text=True,
    ) as process:
        os.close(its_end)
        seen = b""
        while chunk := _read(terminal):
            seen += chunk
        os.close(terminal)
        out, _ = process.communicate()
    assert process.returncode == 0
    assert json.loads(out)["requests"] == 8
    assert b"requests" in seen
    assert b"events audited" in seen


def _read(terminal: int) -> bytes:
    """The next bytes of a terminal; nothing once its other end is closed, which Linux says by an error."""
    try:
        return os.read(terminal, 4_096)
    except OSError:
        return b""


def test_the_program_itself_answers_help_and_nothing_else_on_stdout() -> None:
    for arguments in ([], ["--help"], ["show", "--help"], ["run", "--help"]):
        done = subprocess.run(
            [*PROGRAM, *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert "Usage: kvledger" in done.stdout
