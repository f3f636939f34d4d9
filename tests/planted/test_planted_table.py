"""The catalogues are whole: every family has variants and tests, and docs/planted-faults.md tells all."""

import pytest

from tests.planted.families import FAMILIES
from tests.planted.planting import Planting
from tests.planted.table import CATALOGUES, DOCUMENT, defined_in, render, variants_of
from tests.planted.variant import Audit


def test_the_document_is_the_one_that_the_catalogues_give() -> None:
    assert DOCUMENT.read_text() == render(), "write it anew: python -m tests.planted.table"


def test_every_family_has_variants_and_every_variant_a_family() -> None:
    assert sorted(FAMILIES) == list(range(1, 43))
    assert [number for number in FAMILIES if not variants_of(number)] == []
    unknown = {
        family for variants in CATALOGUES.values() for variant in variants for family in variant.families
    }
    assert unknown <= set(FAMILIES)


def test_every_family_has_tests_that_are_there_once() -> None:
    files = defined_in()
    wrong = {name: files.get(name) for _, tests in FAMILIES.values() for name in tests}
    assert {name: where for name, where in wrong.items() if where is None or len(where) > 1} == {}


def test_names_are_given_once() -> None:
    names = [variant.name for variants in CATALOGUES.values() for variant in variants]
    assert len(names) == len(set(names))


def test_the_audit_finds_most_of_them_and_by_every_invariant_that_looks_at_a_cache() -> None:
    found = [v.found for variants in CATALOGUES.values() for v in variants]
    by_audit = [one.invariant for one in found if isinstance(one, Audit)]
    assert len(by_audit) > len(found) // 2
    assert {
        "locked-full",
        "locked-swa",
        "conservation",
        "mapping",
        "lock-order",
        "window-match",
        "insert-match",
        "row-safety",
        "rollback-neutral",
        "namespace",
        "credit",
        "recency",
        "checkpoint",
        "well-formed",
    } <= set(by_audit)


def _right(number: int) -> int:
    return number + 1


def test_an_edit_is_made_where_the_right_line_stands_exactly_once(monkeypatch: pytest.MonkeyPatch) -> None:
    known = _right
    with monkeypatch.context() as patch:
        Planting(patch).edit(_right, ("number + 1", "number + more"), more=2)
        assert known(1) == 3
    assert known(1) == 2
    for missing in ("number + 2", "number"):
        with pytest.raises(AssertionError, match="not once"):
            Planting(monkeypatch).edit(_right, (missing, "0"))
