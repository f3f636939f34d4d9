"""Figures for docs/mutation.md, in Markdown: `python -m tests.mutation.report RESULTS...` in the root.

The last result of a mutant counts, so results of a second look at the survivors go last.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

from tests.mutation.explained import EXPLAINED
from tests.mutation.operators import Key, Mutant

NAMES = [field.name for field in fields(Mutant)]


def results(paths: Iterable[Path]) -> dict[Key, tuple[Mutant, str]]:
    """By key: the mutant, and what became of it at last."""
    found: dict[Key, tuple[Mutant, str]] = {}
    for path in paths:
        for line in path.read_text().splitlines():
            told = json.loads(line)
            mutant = Mutant(**{name: told[name] for name in NAMES})
            found[mutant.key] = (mutant, told["outcome"])
    return found


def by_file(found: Iterable[tuple[Mutant, str]]) -> list[str]:
    """A row for each file, and one for all."""
    counts: dict[str, Counter[str]] = {}
    for mutant, outcome in found:
        told = outcome
        if outcome == "survived":
            told = "explained" if mutant.key in EXPLAINED else "survived"
        for name in (mutant.file, "all"):
            counts.setdefault(name, Counter())[told] += 1
    rows = ["| file | mutants | killed | timeout | explained | open |", "|---|--:|--:|--:|--:|--:|"]
    for name in sorted(counts, key=lambda name: (name == "all", name)):
        one = counts[name]
        figures = [one.total(), one["killed"], one["timeout"], one["explained"], one["survived"]]
        rows.append(f"| {name} | " + " | ".join(map(str, figures)) + " |")
    return rows


def explanations() -> list[str]:
    """A row for each explained mutant."""
    rows = ["| where | mutant | why no test has to tell it |", "|---|---|---|"]
    for (file, function, operator, before, after, nth), reason in EXPLAINED.items():
        again = f" ({nth + 1})" if nth else ""
        told = f"{operator}: {_code(before)} → {_code(after)}{again}"
        rows.append(f"| {file}, `{function}` | {told} | {reason} |")
    return rows


def _code(text: str) -> str:
    return "`" + text.replace("|", "\\|") + "`"


if __name__ == "__main__":
    print("\n".join(by_file(results(map(Path, sys.argv[1:])).values())))
    print()
    print("\n".join(explanations()))
