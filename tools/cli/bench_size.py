"""`kvledger bench scale` and `kvledger bench memory`: what does not grow with size, and what does."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import BaseModel
from rich.table import Table

from kvledger.core.errors import InvalidArgument
from kvledger.tools.cli.output import OK, JsonOption, page, print_json, progress_bar

if TYPE_CHECKING:
    from kvledger.tools.bench.scale import RollbackFigure, ScaleFigure, ScaleReport


def bench_scale_command(
    nodes: Annotated[int, typer.Option("--nodes", min=1, help="Nodes in the largest tree.")] = 100_000,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Requests per figure.")] = 200,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Names the prompts.")] = 0,
    as_json: Annotated[bool, JsonOption] = False,
) -> int:
    """A request's time beside ever more nodes, and a rollback's under ever more context (ratios)."""
    from kvledger.tools.bench.scale import bench_scale

    with progress_bar() as progress:
        report = bench_scale(nodes=nodes, repeats=repeats, seed=seed, progress=progress)
    if as_json:
        print_json(report)
    else:
        _print_scale(report)
    return OK


class MemoryFigure(BaseModel):
    """What a node costs without its tokens, and a token, in bytes of the process's resident memory."""

    system: str
    page_size: int
    nodes: int
    bytes_per_node: float
    bytes_per_token: float


class MemoryReport(BaseModel):
    """All figures of one `kvledger bench memory`."""

    figures: list[MemoryFigure]


def bench_memory_command(
    page_size: Annotated[
        list[int] | None,
        typer.Option("--page-size", min=1, help="Tokens a page, repeatable. Default: 1, 64."),
    ] = None,
    nodes: Annotated[int, typer.Option("--nodes", min=1_000, help="Prompts in the smaller fills.")] = 20_000,
    harness: Annotated[
        Path | None, typer.Option("--harness", help="Folder of a harness for caches of other projects.")
    ] = None,
    system: Annotated[
        list[str] | None, typer.Option("--system", help="One of the harness's systems, repeatable.")
    ] = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> int:
    """Bytes of host memory per node and per cached token, each figure from three processes of its own."""
    from subprocess import CalledProcessError

    from kvledger.tools.bench.memory import OURS, footprint

    figures: list[MemoryFigure] = []
    sizes = page_size or [1, 64]
    systems = [*(system or []), OURS]  # what may not be there first
    with progress_bar() as progress:
        for tokens in sizes:
            for name in systems:
                try:
                    found = footprint(tokens, nodes=nodes, system=name, harness=harness)
                except CalledProcessError as error:
                    last = (error.stderr or "").strip().rpartition("\n")[2]
                    raise InvalidArgument(f"{name} could not be measured: {last}") from error
                figures.append(MemoryFigure(**found._asdict()))
                if progress is not None:
                    progress("figures", len(figures), len(sizes) * len(systems))
    report = MemoryReport(figures=figures)
    if as_json:
        print_json(report)
    else:
        table = Table("system", "page", "bytes a node", "bytes a token")
        for figure in figures:
            cells = (f"{figure.bytes_per_node:,.0f}", f"{figure.bytes_per_token:.1f}")
            table.add_row(figure.system, str(figure.page_size), *cells)
        page().print(table)
    return OK


def _print_scale(report: "ScaleReport") -> None:
    console = page()
    console.print(str(report.environment))
    console.print(
        f"requests of {report.prompt_tokens:,} tokens, pages of {report.page_size}, thread CPU time"
    )
    table = Table("nodes", "Full pool", "median us", "p99 us", "ratio")
    for figure in report.requests:
        table.add_row(f"{figure.nodes:,}", f"{figure.full_tokens:,}", *_cells(figure))
    console.print(table)
    table = Table("rollback under a context of", "median us", "p99 us", "ratio")
    for undone in report.rollbacks:
        table.add_row(f"{undone.context_tokens:,}", *_cells(undone))
    console.print(table)


def _cells(figure: "ScaleFigure | RollbackFigure") -> tuple[str, str, str]:
    return f"{figure.median_us:.1f}", f"{figure.p99_us:.1f}", f"{figure.ratio:.3f}"
