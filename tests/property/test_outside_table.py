"""Whatever takes data from outside is tried with any data: the table in tests/README.md says where."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

from kvledger import core, journal
from kvledger.journal import export

TESTS = Path(__file__).resolve().parents[1]

ROW = re.compile(r"\| (?P<names>`[^|]+) \| (?P<tests>[^|]+) \|")


def table() -> dict[str, list[str]]:
    """Name -> files of tests, as the section says."""
    text = (TESTS / "README.md").read_text(encoding="utf-8")
    section = text.partition("## Data from outside")[2].partition("\n## ")[0]
    rows: dict[str, list[str]] = {}
    for row in ROW.finditer(section):
        files = re.findall(r"`([a-z_/]+\.py)`", row["tests"])
        rows |= dict.fromkeys(re.findall(r"`([A-Za-z_.]+)`", row["names"]), files)
    return rows


def public() -> Iterator[str]:
    """The public names that can be called: functions, and classes that are no errors."""
    for module in (core, journal, export):
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isfunction(value) or (inspect.isclass(value) and not issubclass(value, BaseException)):
                yield name


def test_every_public_callable_is_in_the_table() -> None:
    assert sorted(set(public()) - table().keys()) == []


def test_the_table_names_tests_that_there_are() -> None:
    rows = table()
    assert rows
    for name, files in rows.items():
        missing = [file for file in files if not (TESTS / file).is_file()]
        assert missing == [], name
