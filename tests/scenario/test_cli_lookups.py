"""Look-ups on the command line: pages that go on, pruned journals that say so, files that answer alike."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvledger.journal import EventFilter, Journal
from kvledger.tools.cli import main
from tests.support.places import PLACES, arguments_for, keep_everywhere

PRUNED = "pruned database"


class Shell:
    """Runs a command against the journal in one place."""

    def __init__(self, capsys: pytest.CaptureFixture[str], folder: Path) -> None:
        self._capsys = capsys
        self.folder = folder

    def __call__(self, place: str, *words: object) -> tuple[int, str, str]:
        told = [
            part
            for word in words
            for part in (arguments_for(self.folder, place) if word == "DB" else [str(word)])
        ]
        status = main(told)
        out, err = self._capsys.readouterr()
        return status, out, err

    def document(self, place: str, *words: object) -> Any:
        status, out, err = self(place, *words, "--json")
        assert (status, err) == (0, ""), err
        return json.loads(out)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("places")
    keep_everywhere(path)
    return path


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], folder: Path) -> Shell:
    return Shell(capsys, folder)


@pytest.fixture(scope="module")
def begins(folder: Path) -> int:
    """The first seq that the pruned database still has."""
    with Journal.open(folder / "pruned.db", create=False) as journal:
        return int(journal.reader().beginning().seq)


@pytest.fixture(scope="module")
def nodes(folder: Path) -> Iterator[list[int]]:
    """Some nodes that were cut from others, of the first ones and of the last."""
    with Journal.open(folder / "run.db", create=False) as journal:
        splits: list[Any] = [one.event for one in journal.reader().find(EventFilter(kinds=("node_split",)))]
        yield [int(event.head) for event in (splits[0], splits[-1])]


COMMANDS: list[list[object]] = [
    ["events", "DB"],
    ["events", "DB", "--kind", "node_split", "--kind", "rolled_back", "--newest-first"],
    ["events", "DB", "--request", "r3"],
    ["events", "DB", "--undone"],
    ["events", "DB", "--kept", "--node", "1", "--node", "4"],
    ["events", "DB", "--from", "100", "--to", "200"],
    ["transactions", "DB"],
    ["transactions", "DB", "--op", "commit", "--newest-first"],
    ["transactions", "DB", "--status", "rolled_back"],
    ["transactions", "DB", "--request", "r2", "--from", "20"],
    ["anomalies", "DB"],
    ["anomalies", "DB", "--newest-first"],
    ["history", "slot", "DB", "40"],
    ["history", "slot", "DB", "40", "--swa", "--from", "60"],
    ["history", "request", "DB", "r4"],
    ["history", "request", "DB", "r4", "--newest-first"],
    ["tail", "DB", "-n", "1000"],
    ["show", "tree", "DB", "--at", "150"],
    ["show", "requests", "DB", "--at", "60"],
    ["show", "slot", "DB", "40", "--at", "99"],
    ["diff", "DB", "--from", "30", "--to", "180"],
]
"""Everything that looks back, each over some of what was pruned."""


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: " ".join(map(str, words)))
def test_a_command_says_the_same_wherever_the_journal_is_kept(shell: Shell, command: list[object]) -> None:
    told, *others = [shell(place, *command, "--json") for place in PLACES]
    assert told[0] == 0
    assert told[1]
    assert others == [told] * len(others)


def test_journals_are_listed_wherever_they_are_kept(shell: Shell, begins: int) -> None:
    (told, *others) = [shell(place, "show", "journals", "DB") for place in PLACES]
    assert others == [told] * len(others)
    (alone,) = shell.document(PRUNED, "show", "journals", "DB")["journals"]
    assert alone["first_seq"] == begins
    assert f"before seq {begins} were pruned" in shell(PRUNED, "show", "journals", "DB")[1]


def test_every_command_that_looks_back_says_what_was_pruned(shell: Shell, begins: int) -> None:
    sentence = f"events before seq {begins} were pruned; look in the exported files (--exported DIR)"
    for command in COMMANDS:
        status, out, err = shell(PRUNED, *command)
        assert sentence in err, command
        if command[0] in ("show", "diff"):
            assert (status, out) == (2, ""), command
            continue
        if status == 2:
            assert "no event names" in err, command
            continue
        told = json.loads(
            shell(PRUNED, *command, "--json")[1].splitlines()[0]
            if command[0] == "tail"
            else shell(PRUNED, *command, "--json")[1]
        )
        assert told["unseen"]["sentence"] == sentence, command
        assert told["unseen"]["last_seq"] == begins - 1, command


def test_a_node_of_which_all_is_stored_misses_nothing(shell: Shell, begins: int, nodes: list[int]) -> None:
    early, late = nodes
    status, _, err = shell(PRUNED, "history", "node", "DB", early)
    assert f"events before seq {begins} were pruned" in err
    assert status in (0, 2)
    told = shell.document(PRUNED, "history", "node", "DB", late, "--own")
    assert told["unseen"] is None
    assert shell("database", "history", "node", "DB", late)[2] == ""
    for place in PLACES:
        assert shell(place, "history", "node", "DB", early) == shell(
            "database", "history", "node", "DB", early
        )


@pytest.mark.parametrize(
    "command",
    [
        ["events", "DB", "--limit", "10000", "--from"],
        ["events", "DB", "--limit", "10000", "--after"],
        ["anomalies", "DB", "--from"],
        ["transactions", "DB", "--limit", "10000", "--from"],
        ["tail", "DB", "-n"],
        ["history", "slot", "DB", "40", "--from"],
        ["show", "tree", "DB", "--at"],
    ],
    ids=lambda words: " ".join(words),
)
def test_what_lies_behind_the_pruned_part_is_told_without_a_word_of_it(
    shell: Shell, begins: int, command: list[str]
) -> None:
    where = 5 if command[0] == "tail" else begins
    assert shell(PRUNED, *command, where)[::2] == (0, "")


def test_a_question_about_late_times_misses_nothing(shell: Shell) -> None:
    last = shell.document("database", "events", "DB", "--limit", "1", "--newest-first")["events"][0]
    told = shell.document(PRUNED, "events", "DB", "--since", last["time"])
    assert (told["unseen"], told["events"][-1]) == (None, last)
    assert shell.document(PRUNED, "events", "DB", "--until", last["time"])["unseen"] is not None


def test_newest_first_only_the_last_page_misses_something(shell: Shell, begins: int) -> None:
    found = shell.document(PRUNED, "events", "DB", "--newest-first", "--limit", "20")
    assert (found["unseen"], found["next"]) == (None, found["events"][-1]["seq"])
    rest = shell.document(
        PRUNED, "events", "DB", "--newest-first", "--limit", "10000", "--before", found["next"]
    )
    assert rest["unseen"]["last_seq"] == begins - 1
    assert (rest["next"], rest["events"][-1]["seq"]) == (None, begins)


@pytest.mark.parametrize(
    ("command", "items", "newest_first"),
    [
        (["events", "DB", "--request", "r3"], "events", False),
        (["events", "DB", "--request", "r3"], "events", True),
        (["transactions", "DB", "--op", "commit"], "transactions", False),
        (["transactions", "DB", "--op", "commit"], "transactions", True),
        (["anomalies", "DB"], "anomalies", False),
        (["anomalies", "DB"], "anomalies", True),
        (["history", "slot", "DB", "40"], "tenures", False),
        (["history", "node", "DB", "NODE"], "events", False),
        (["history", "request", "DB", "r4"], "events", False),
        (["history", "request", "DB", "r4"], "events", True),
    ],
)
def test_an_answer_that_was_cut_goes_on_with_the_option_that_it_prints(
    shell: Shell, nodes: list[int], command: list[str], items: str, newest_first: bool
) -> None:
    asked = [str(nodes[-1]) if word == "NODE" else word for word in command]
    asked += ["--newest-first"] if newest_first else []
    whole = shell.document("database", *asked, "--limit", "10000")
    assert whole["next"] is None
    pages: list[Any] = []
    on: list[str] = []
    while True:
        page = shell.document("database", *asked, "--limit", "2", *on)
        pages += page[items]
        _, out, err = shell("database", *asked, "--limit", "2", *on)
        if page["next"] is None:
            assert err == ""
            break
        assert len(page[items]) == len(out.splitlines()) == 2
        on = err.removeprefix("there are more: ").split()
        assert on == ["--before" if newest_first else "--after", str(page["next"])]
    assert len(pages) > 3
    assert pages == whole[items]


def test_files_are_not_followed_and_take_no_files_beside_them(shell: Shell) -> None:
    status, _, err = shell("parquet", "tail", "DB", "--follow")
    assert (status, "do not grow" in err) == (2, True)
    status, _, err = shell("jsonl", "events", "DB", "--exported", shell.folder / "older")
    assert (status, "holds exported files already" in err) == (2, True)
