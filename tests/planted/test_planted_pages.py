"""Planted faults of the allocator and the mapping: each is found by what its catalogue names."""

from pathlib import Path

import pytest

from tests.planted.catalogue_pages import VARIANTS
from tests.planted.trial import try_out
from tests.planted.variant import Variant

pytestmark = pytest.mark.interpreted


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_a_planted_fault_is_found_and_the_right_code_passes(
    variant: Variant, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    try_out(variant, monkeypatch, tmp_path)
