"""docs/planted-faults.md, written from the catalogues: `python -m tests.planted.table` in the root."""

import re
from pathlib import Path

from tests.faults.test_families_journal import PROBES, test_a_family_of_faults_has_the_right_value
from tests.planted import (
    catalogue_journal,
    catalogue_locks,
    catalogue_order,
    catalogue_pages,
    catalogue_recovery,
    catalogue_undo,
)
from tests.planted.families import FAMILIES
from tests.planted.variant import Variant

TESTS = Path(__file__).parents[1]
DOCUMENT = TESTS.parent / "docs" / "planted-faults.md"

CATALOGUES = {
    "Tree and recovery": catalogue_recovery.VARIANTS,
    "Allocator and mapping": catalogue_pages.VARIANTS,
    "Locks": catalogue_locks.VARIANTS,
    "Eviction and identity": catalogue_order.VARIANTS,
    "Events and rollback": catalogue_undo.VARIANTS,
    "Journals and their readers": catalogue_journal.VARIANTS,
}

HEAD = """# Planted faults

Trust in a checker comes from having seen it find something. `tests/planted` holds {variants} wrong
variants of core and journal, a few lines each; for each of them a test says which check finds it, within
a short deterministic run, and where that check has to point. The same run on the right code passes
everything. The tables below are written by `python -m tests.planted.table`, and a test holds them to the
catalogues.

What finds a fault is one of:

* **audit**: an invariant, from the events alone, before it finds anything else, at an event of the kind
  that is named: the first one that the right code would not have written, one of the same transaction, or
  a later one where the first consequences were sound by themselves. Guards of the cache that would have
  stopped the fault are off.
* **`check()`**: the cache's own full walk, where no event can tell: progress of a request, the device's
  mirror.
* **the cache**: a typed error of its own, before anything wrong is journaled.
* **probe**: a short run of the journal or of a workload with real KV (`tests/planted/probes*.py`), which
  names the check: the hash chain, a key of the schema, the audit of what was stored, the reads of running
  requests, the pool's own refusal, the digest of a checkpoint, a second connection, a count of calls.
* **test**: a rule that nothing but its own statement can hold the cache to, such as which of two leaves
  goes first.

"""

FAMILIES_HEAD = """## Families of faults

What systems of this kind have really had, and the tests that state the right value.

| | family | tests | variants |
|---|---|---|---|
"""


def render() -> str:
    """The document as it has to be."""
    out = [HEAD.format(variants=sum(map(len, CATALOGUES.values())))]
    for title, variants in CATALOGUES.items():
        out.append(f"## {title}\n\n| variant | families | what is wrong | found by |\n|---|---|---|---|\n")
        for variant in variants:
            families = ", ".join(map(str, variant.families))
            cells = (variant.name, families, variant.wrong, variant.found.describe())
            out.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n")
        out.append("\n")
    out.append(FAMILIES_HEAD)
    files = defined_in()
    for number, (sentence, tests) in FAMILIES.items():
        told = ", ".join(f"`{files[name][0]}`: {_spaced(name, number)}" for name in tests)
        out.append(f"| {number} | {sentence} | {told} | {len(variants_of(number))} |\n")
    return "".join(out)


def variants_of(family: int) -> list[Variant]:
    """The variants of one family."""
    return [v for variants in CATALOGUES.values() for v in variants if family in v.families]


def defined_in() -> dict[str, list[str]]:
    """By name of a test: the files below tests/ that define one."""
    found: dict[str, list[str]] = {}
    for file in sorted(TESTS.rglob("test_*.py")):
        for name in re.findall(r"^def (test_\w+)\(", file.read_text(), re.MULTILINE):
            found.setdefault(name, []).append(str(file.relative_to(TESTS)))
    return found


def _spaced(name: str, family: int) -> str:
    """A test in words; of the one that tries all probes, those of the family."""
    if name == test_a_family_of_faults_has_the_right_value.__name__:
        probes = [probe for probe in PROBES if str(family) in probe.partition(":")[0].split()]
        return ", ".join(probe.partition(": ")[2] for probe in probes)
    return name.removeprefix("test_").replace("_", " ")


if __name__ == "__main__":
    DOCUMENT.write_text(render())
