"""Bad input at the command line: one clear sentence on stderr, exit status 2, nothing on stdout."""

import json
from pathlib import Path

import pytest

from kvledger.tools.cli import main


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "run.db"
    assert main(["run", "--requests", "3", "--durability", "background", "--db", str(path), "--json"]) == 0
    return path


def complaint(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one sentence that the command leaves with."""
    status = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    assert (status, out) == (2, "")
    assert err.endswith("\n")
    assert err.startswith("kvledger: ")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    return err.removeprefix("kvledger: ").rstrip("\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["walk"], "No such command 'walk'"),
        (["run", "--nonsense"], "No such option"),
        (["audit"], "Missing argument 'DATABASE'"),
        (["show"], "Missing command"),
        (["show", "leaf", "x.db"], "No such command 'leaf'"),
        (["bench"], "Missing command"),
        (["replay", "x.db", "--at", "soon"], "'--at'"),
        (["replay", "x.db", "--at", "0"], "'--at'"),
        (["show", "slot", "x.db", "many"], "SLOT"),
        (["show", "node", "x.db", "-1"], "-1"),
        (["audit", "x.db", "--journal", "0"], "'--journal'"),
        (["run", "--window", "0"], "'--window'"),
        (["run", "--page-size", "0"], "'--page-size'"),
        (["run", "--page-size", "two"], "'--page-size'"),
        (["run", "--requests", "0"], "'--requests'"),
        (["run", "--requests", "10000000"], "1 to 1,000,000 requests"),
        (["run", "--seed", "-1"], "'--seed'"),
        (["run", "--durability", "never"], "'--durability'"),
        (["run", "--engine", "steam"], "'--engine'"),
        (["bench", "ops", "--repeats", "0"], "'--repeats'"),
    ],
)
def test_wrong_usage_names_the_argument(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert words.lower() in complaint(capsys, *arguments).lower()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--page-size", "7"], "page_size 7 does not divide full_tokens 24576"),
        (["--full-tokens", "1000"], "page_size 16 does not divide full_tokens 1000"),
        (["--swa-tokens", "1000"], "page_size 16 does not divide swa_tokens 1000"),
        (["--page-size", "70000"], "page_size"),
        (["--device", "abacus"], "abacus"),
    ],
)
def test_sizes_that_make_no_cache_are_refused_before_anything_is_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: list[str], words: str
) -> None:
    path = tmp_path / "run.db"
    assert words in complaint(capsys, "run", "--requests", "2", "--db", path, *arguments)
    assert not path.exists()


@pytest.mark.parametrize("command", [["audit"], ["replay"], ["show", "tree"]])
def test_a_database_that_is_not_there_is_named_and_not_made(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: list[str]
) -> None:
    path = tmp_path / "missing.db"
    for name in (path, f"sqlite:///{path}"):
        assert "missing.db" in complaint(capsys, *command, name)
    assert not path.exists()


@pytest.mark.parametrize("name", ["nonsense://", "sqlite://", "://", ""])
def test_a_name_that_is_no_database_is_refused(capsys: pytest.CaptureFixture[str], name: str) -> None:
    complaint(capsys, "audit", name)
    complaint(capsys, "run", "--requests", "2", "--db", name)


def test_a_file_that_is_no_database_is_refused_and_left_alone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("Dear auditor,\n" * 100, encoding="utf-8")
    before = path.read_bytes()
    for command in (["audit"], ["replay"], ["run", "--requests", "2", "--db"]):
        assert "letter.txt" in complaint(capsys, *command, path)
    assert path.read_bytes() == before
    complaint(capsys, "audit", tmp_path)


def test_a_journal_that_is_not_in_the_database_is_named(
    capsys: pytest.CaptureFixture[str], database: Path
) -> None:
    for command in (["audit"], ["replay"], ["show", "tree"]):
        assert "9" in complaint(capsys, *command, database, "--journal", "9")


def test_what_is_not_in_the_journal_is_named(capsys: pytest.CaptureFixture[str], database: Path) -> None:
    assert "no node 999999" in complaint(capsys, "show", "node", database, "999999")
    assert "slot 3 is not in the Full pool" in complaint(capsys, "show", "slot", database, "3")
    assert "'nobody'" in complaint(capsys, "show", "request", database, "nobody")
    said = complaint(capsys, "show", "tree", database, "--namespace", "nope")
    assert "no node of namespace 'nope' at seq" in said
    assert "namespaces there: " in said


@pytest.mark.parametrize(
    "command",
    [
        ["replay", "DB", "--at"],
        ["show", "tree", "DB", "--at"],
        ["show", "requests", "DB", "--at"],
        ["show", "eviction", "DB", "--pool", "swa", "--at"],
        ["diff", "DB", "--from", "1", "--to"],
    ],
)
def test_a_seq_that_is_not_there_yet_is_refused(
    capsys: pytest.CaptureFixture[str], database: Path, command: list[str]
) -> None:
    command = [str(database) if word == "DB" else word for word in command]
    said = complaint(capsys, *command, "999999")
    assert said.startswith("seq 999999 is not there yet: the journal ends at ")
    end = said.rpartition(" ")[2]
    assert main([*command, end]) == 0
    capsys.readouterr()
    assert str(int(end) + 1) in complaint(capsys, *command, str(int(end) + 1))


def test_a_run_that_serves_nobody_did_not_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    sizes = ["--full-tokens", "64", "--swa-tokens", "64"]
    said = complaint(capsys, "run", "--requests", "5", *sizes, "--db", tmp_path / "run.db")
    assert said.startswith("nothing was served: each of the 5 requests is too large for the pools")


def test_a_database_in_memory_is_refused_with_what_to_use_instead(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "kvledger.core.MemorySink" in complaint(capsys, "run", "--requests", "2", "--db", "sqlite://")


def test_a_corrupt_trace_is_named_with_its_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    good = json.dumps({"timestamp": 0, "input_length": 9, "output_length": 2, "hash_ids": [0]})
    trace = tmp_path / "trace.jsonl"
    trace.write_text(f"{good}\n{good}\n{{oops\n", encoding="utf-8")
    path = tmp_path / "run.db"
    said = complaint(capsys, "run", "--trace", trace, "--db", path)
    assert "trace.jsonl, line 3: not JSON" in said
    assert "cannot be read" in complaint(capsys, "run", "--trace", tmp_path / "none.jsonl", "--db", path)
    assert not path.exists()


def test_a_fault_of_the_program_is_no_verdict(
    capsys: pytest.CaptureFixture[str], database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a fault of the program")

    monkeypatch.setattr("kvledger.tools.audit.judge.audit", broken)
    assert main(["audit", str(database)]) == 2
    assert "a fault of the program" in capsys.readouterr().err
