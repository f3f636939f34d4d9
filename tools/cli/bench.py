"""`kvledger bench`: what the cache costs."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from kvledger.tools.cli.output import OK, JsonOption, page, print_json, progress_bar

if TYPE_CHECKING:
    from kvledger.tools.bench.ops import OpsReport

bench_app = typer.Typer(help="Measure what the cache costs.")


@bench_app.callback()
def _bench() -> None:
    """Keeps `ops` a command of its own while it is the only one."""


@bench_app.command("ops")
def bench_ops_command(
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Measurements per figure.")] = 200,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Names the prompts.")] = 0,
    as_json: Annotated[bool, JsonOption] = False,
) -> int:
    """Median and 99th percentile of each operation, journaling off and on (thread CPU time)."""
    from kvledger.tools.bench.ops import bench_ops

    with progress_bar() as progress:
        report = bench_ops(repeats=repeats, seed=seed, progress=progress)
    if as_json:
        print_json(report)
    else:
        _print(report)
    return OK


def _print(report: "OpsReport") -> None:
    console = page()
    console.print(str(report.environment))
    console.print(f"window {report.window}, seed {report.seed}, {report.repeats} measurements per figure")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), caption_justify="left")
    table.add_column("operation")
    for heading in ("page", "tokens", "journal", "median µs", "p99 µs"):
        table.add_column(heading, justify="right")
    for figure in report.figures:
        table.add_row(
            figure.operation,
            str(figure.page_size),
            f"{figure.tokens:,}",
            "on" if figure.journaling else "off",
            f"{figure.median_us:,.1f}",
            f"{figure.p99_us:,.1f}",
        )
    console.print(table)
