"""Tries a variant: the right code passes, and on the wrong one what has to find the fault finds it."""

from pathlib import Path

import pytest

from tests.planted.evidence import right_run, run
from tests.planted.planting import Planting
from tests.planted.variant import Named, Probe, Variant


def try_out(variant: Variant, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """AssertionError unless the variant is found by what its catalogue names, where that has to point.

    Probes and named tests are tried on the right code by tests of their own, tests/faults/test_families_*.py.
    """
    found = variant.found
    if isinstance(found, Probe):
        variant.plant(Planting(monkeypatch))
        told = found.probe(folder)
        assert told is not None, "nothing is found"
        assert found.words in told, told
        return
    if isinstance(found, Named):
        variant.plant(Planting(monkeypatch))
        with pytest.raises(AssertionError):
            found.test(*found.arguments)
        return
    for course in variant.courses:
        right = right_run(course)
        assert right.stopped is None, repr(right.stopped)
        assert right.walked is None, f"the walk cries wolf: {right.walked}"
        assert right.verdict.verdict == "pass", f"the audit cries wolf: {right.verdict.findings[:3]}"
    for course in variant.courses:
        right = right_run(course)
        with monkeypatch.context() as patch:
            variant.plant(Planting(patch))
            evidence = run(course)
        if found.noticed(evidence):
            found.confirm(evidence, right)
            return
    raise AssertionError("nothing is found on any course")
