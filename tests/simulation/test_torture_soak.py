"""The bounded form of `kvledger torture soak`: how it counts and when it fails. Two seconds."""

import json
from itertools import count
from typing import Any

import pytest

from kvledger.core.errors import InvalidArgument
from kvledger.tools.cli import main
from kvledger.tools.torture import soak as soak_module
from kvledger.tools.torture.soak import PARTS, SoakSetup, soak

OPERATIONS = 2_000


def test_every_tenth_has_its_operations_and_the_state_stays_small() -> None:
    report = soak(SoakSetup(OPERATIONS, journal=False))
    assert len(report.parts) == PARTS
    assert sum(part.operations for part in report.parts) == report.operations
    assert OPERATIONS <= report.operations < OPERATIONS + 5
    assert report.events == 0


@pytest.mark.parametrize("eviction", ["lru", "lru-2"])
def test_the_same_seed_records_the_same_events(eviction: Any) -> None:
    first, second = (soak(SoakSetup(OPERATIONS, 3, eviction)) for _ in range(2))
    assert first.events == second.events > OPERATIONS / 10
    assert [part.nodes for part in first.parts] == [part.nodes for part in second.parts]


def test_memory_that_grows_fails_and_memory_that_stays_passes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["torture", "soak", "--ops", str(OPERATIONS), "--no-journal", "--json"]
    for step, status in ((0, 0), (1, 1)):
        grown = count(100, step)
        monkeypatch.setattr(soak_module, "resident_bytes", lambda grown=grown: next(grown))
        assert main(arguments) == status
        report = json.loads(capsys.readouterr().out)
        assert report["growth"] == 0.09 * step


def test_the_report_is_told_in_lines(capsys: pytest.CaptureFixture[str]) -> None:
    main(["torture", "soak", "--ops", str(OPERATIONS), "--no-journal"])
    out = capsys.readouterr().out
    assert out.startswith("operations     2,0")
    assert f"{PARTS}/{PARTS}" in out
    assert "memory grew by" in out


def test_a_soak_that_is_too_short_for_tenths_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="at least 1000 operations"):
        SoakSetup(999)
