"""How every command speaks: results on stdout, everything else on stderr, one object with --json."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from pydantic import BaseModel
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.table import Table

from kvledger.core.errors import InvalidArgument
from kvledger.tools.progress import Progress

OK = 0
VIOLATION = 1
COULD_NOT_RUN = 2
INTERRUPTED = 130
"""What a shell says of a program that SIGINT ended: 128 and the number of the signal."""

FILE_COLUMNS = 110
"""As wide as the widest line of a report, and still fit for a document."""

SMALL_FILE_BYTES = 65_536
"""Keys and anchors are far smaller; a wrong path may lead to something that fits no memory."""

SeedOption = typer.Option("--seed", min=0, help="Names the built-in workload.")
TraceOption = typer.Option("--trace", help="A Mooncake trace. Default: the built-in workload.")
JsonOption = typer.Option("--json", help="Print one JSON object and nothing else.")


class Interrupted(Exception):
    """SIGINT ended a command that has something to say about it."""


def print_json(result: BaseModel | dict[str, Any]) -> None:
    """One object on stdout."""
    if isinstance(result, BaseModel):
        typer.echo(result.model_dump_json(indent=2))
        return
    # Only what commands build themselves comes here; pydantic writes arrays and enums inside it alike.
    from pydantic_core import to_json

    typer.echo(to_json(result, indent=2).decode())


def read_small_file(path: Path, *, what: str) -> bytes:
    """The bytes of a key or an anchor. Raises InvalidArgument where there is no such file, or a huge one."""
    try:
        with path.open("rb") as file:
            data = file.read(SMALL_FILE_BYTES + 1)
    except OSError as error:
        raise InvalidArgument(f"the {what} cannot be read: {error}") from error
    if len(data) > SMALL_FILE_BYTES:
        raise InvalidArgument(f"{path} has more than {SMALL_FILE_BYTES} bytes: that is no {what}")
    return data


def figures_table(first: str, *others: str) -> Table:
    """A table whose first column names what the others have figures of."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), caption_justify="left")
    table.add_column(first)
    for heading in others:
        table.add_column(heading, justify="right")
    return table


def page() -> Console:
    """The console for results; a file or a pipe gets lines of `FILE_COLUMNS`."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else FILE_COLUMNS)


def complain(sentence: str) -> None:
    """One clear sentence on stderr, without the line breaks that a library may have put in."""
    typer.echo(f"kvledger: {' '.join(sentence.split())}", err=True)


@contextmanager
def progress_bar() -> Iterator[Progress | None]:
    """Bars on stderr, one for each kind of thing that is counted; None where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done)

        yield show
