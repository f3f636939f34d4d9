"""Documents as two columns: for people who look at one thing."""

from pydantic import BaseModel
from rich.text import Text

from kvledger.tools.cli.output import page, print_json

MAX_SHOWN = 16
"""Numbers of a list that fit a line; --json has all of them."""


def show_document(document: BaseModel, *, as_json: bool) -> None:
    """Print one document, as JSON or as two columns."""
    if as_json:
        print_json(document)
        return
    console = page()
    for name, value in document.model_dump().items():
        console.print(Text.assemble((f"{name.replace('_', ' '):<16}", "bold"), _words(value)))


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
