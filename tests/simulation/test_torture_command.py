"""`kvledger torture sim`: the same seed is the same run, and bad input is a sentence. A few seconds."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from kvledger.tools.cli import main
from kvledger.tools.torture.sim.dice import Dice
from kvledger.tools.torture.sim.many import simulate
from kvledger.tools.torture.sim.operations import draw
from kvledger.tools.torture.sim.setting import Setting

SEED = 7


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(["torture", "sim", *arguments])
    told = capsys.readouterr()
    return status, told.out, told.err


def test_the_same_seed_prints_the_same_summary_whatever_the_hash_seed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["--seeds", "7-8", "--ops", "200", "--json"]
    status, here, _ = printed(capsys, *arguments)
    assert status == 0
    program = "import sys; from kvledger.tools.cli import main; sys.exit(main())"
    there = subprocess.run(
        [sys.executable, "-c", program, "torture", "sim", *arguments],
        env=os.environ | {"PYTHONHASHSEED": "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert there.stdout == here


def test_processes_that_share_the_seeds_change_nothing() -> None:
    seeds = range(SEED, SEED + 6)
    assert simulate(seeds, 60, jobs=2) == simulate(seeds, 60)


def test_other_seeds_are_other_runs() -> None:
    digests = {simulate(range(seed, seed + 1), 60).digest for seed in range(5)}
    assert len(digests) == 5


def test_a_longer_run_begins_like_a_shorter_one() -> None:
    setting = Setting.drawn(SEED)
    assert draw(setting, 500)[:100] == draw(setting, 100)


def test_a_choice_stays_while_what_was_chosen_is_there() -> None:
    for number in range(50):
        chosen = Dice(number).prefer(range(10))
        assert chosen is not None
        for other in range(10):
            rest = [candidate for candidate in range(10) if candidate != other]
            assert other == chosen or Dice(number).prefer(rest) == chosen
    assert Dice(1).prefer([]) is None


def test_some_operations_alone_are_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = printed(capsys, "--seed", "7", "--ops", "100", "--only", "90,3,4,3", "--json")
    summary: dict[str, Any] = json.loads(out)
    assert (status, summary["operations"], summary["failures"]) == (0, 3, [])


def test_the_summary_is_told_in_lines(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = printed(capsys, "--seeds", "2", "--seed", "7", "--ops", "50")
    assert status == 0
    assert out.startswith("simulated      seeds 7 to 8, 50 operations each\n")
    assert out.endswith("torture: pass\n")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--seeds", "x"], "--seeds is A-B or a count, not 'x'"),
        (["--seeds", "9-3"], "there are no seeds from 9 to 3"),
        (["--seeds", "0"], "there are no seeds from 0 to -1"),
        (["--seeds", "3", "--only", "1"], "--only names operations of one seed: give --seed"),
        (["--only", "1,,2"], "--only is numbers with commas between them, not '1,,2'"),
        (["--ops", "5", "--only", "1,5"], "operation 5 is none of the 5 of --ops: they begin with 0"),
        (["--ops", "0"], "'--ops'"),
        (["--jobs", "0"], "'--jobs'"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = printed(capsys, *arguments)
    assert (status, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1
