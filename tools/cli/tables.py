"""Documents as two columns: for people who look at one thing."""

from typing import Protocol, runtime_checkable

from pydantic import BaseModel
from rich.text import Text

from kvledger.tools.cli.output import page, print_json

MAX_SHOWN = 16
"""Numbers of a list that fit a line; --json has all of them."""


TITLE_COLUMNS = 18
"""The longest name of a field, and a gap behind it."""


@runtime_checkable
class Lined(Protocol):
    """A document that is one line of text."""

    def line(self) -> str: ...


def show_document(document: BaseModel, *, as_json: bool) -> None:
    """Print one document, as JSON or as two columns; documents in it that have a line, one below another."""
    if as_json:
        print_json(document)
        return
    console = page()
    for name, value in document.model_dump().items():
        title = f"{name.replace('_', ' '):<{TITLE_COLUMNS}}"
        for words in _rows(getattr(document, name), value):
            # A line that a program looks for is not broken; a terminal wraps by itself.
            console.print(Text.assemble((title, "bold"), words), soft_wrap=True)
            title = " " * TITLE_COLUMNS


def _rows(field: object, value: object) -> list[str]:
    """A list of documents that know their line has a row for each, everything else one row."""
    if isinstance(field, list | tuple) and field and isinstance(field[0], Lined):
        more = [] if len(field) <= MAX_SHOWN else [f"... ({len(field)} in all)"]
        return [one.line() for one in field[:MAX_SHOWN]] + more
    return [_words(value)]


def _words(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, dict):
        return ", ".join(f"{_words(part)} {name}" for name, part in value.items())
    if isinstance(value, list | tuple):
        shown = ", ".join(str(part) for part in value[:MAX_SHOWN]) or "none"
        return shown if len(value) <= MAX_SHOWN else f"{shown}, ... ({len(value)} in all)"
    return str(value)
