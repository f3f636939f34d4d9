"""`kvledger bench replay`: how fast a stored journal is read back, replayed, audited and verified."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvledger.core.errors import InvalidArgument
from kvledger.tools.cli.output import (
    OK,
    JsonOption,
    SeedOption,
    TraceOption,
    figures_table,
    page,
    print_json,
    progress_bar,
)
from kvledger.tools.cli.stored import JournalOption

if TYPE_CHECKING:
    from kvledger.tools.bench.replay import ReplayReport
    from kvledger.tools.progress import Progress


def bench_replay_command(
    trace: Annotated[Path | None, TraceOption] = None,
    requests: Annotated[int, typer.Option("--requests", min=1, help="How many requests.")] = 800,
    page_size: Annotated[
        list[int] | None,
        typer.Option("--page-size", min=1, help="Tokens a page; may be given several times. Default: 64, 1."),
    ] = None,
    database: Annotated[
        str | None, typer.Option("--db", help="Measure this stored journal instead, by URL or path.")
    ] = None,
    journal: JournalOption = None,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Rounds through each journal.")] = 3,
    seed: Annotated[int, SeedOption] = 0,
    as_json: Annotated[bool, JsonOption] = False,
) -> int:
    """Events and pages per second of reading, decoding, folding, auditing and verifying (thread CPU time)."""
    from kvledger.tools.bench.recording import traffic
    from kvledger.tools.bench.replay import PAGE_SIZES, bench_replay

    with progress_bar() as progress:
        if database is not None:
            report = _stored(database, journal, repeats=repeats, progress=progress)
        else:
            work = traffic(trace=trace, requests=requests, seed=seed)
            sizes = page_size or PAGE_SIZES
            report = bench_replay(work, repeats=repeats, page_sizes=sizes, progress=progress)
    if as_json:
        print_json(report)
    else:
        _print(report)
    return OK


def _stored(
    database: str, journal: int | None, *, repeats: int, progress: "Progress | None"
) -> "ReplayReport":
    from kvledger.journal import JournalReader
    from kvledger.tools.bench.replay import bench_stored_replay
    from kvledger.tools.reading.sources import open_source

    with open_source(database, journal) as opened:
        if not isinstance(opened.source, JournalReader):
            raise InvalidArgument(f"{database} is a folder of exported files: name a database")
        return bench_stored_replay(opened.source, source=database, repeats=repeats, progress=progress)


def _print(report: "ReplayReport") -> None:
    console = page()
    console.print(str(report.environment))
    for journal in report.journals:
        console.print(
            f"{report.source}, pages of {journal.page_size}: {journal.transactions:,} transactions, "
            f"{journal.events:,} events over {journal.pages:,} pages, {report.repeats} times"
        )
    table = figures_table("one core", "page", "events/s", "pages/s", "median µs", "p99 µs", "of replay")
    for figure in report.figures:
        table.add_row(
            figure.work,
            str(figure.page_size),
            f"{figure.events_per_second:,}",
            f"{figure.pages_per_second:,}",
            f"{figure.median_us:.2f}",
            f"{figure.p99_us:.2f}",
            f"{figure.ratio:.2f}",
        )
    console.print(table)
