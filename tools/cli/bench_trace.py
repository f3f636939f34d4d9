"""`kvledger bench trace`: what journaling costs a scheduler's thread, and the whole process."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

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

if TYPE_CHECKING:
    from kvledger.tools.bench.trace import TraceReport


def bench_trace_command(
    trace: Annotated[Path | None, TraceOption] = None,
    requests: Annotated[int, typer.Option("--requests", min=1, help="How many requests.")] = 1_000,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Rounds of runs, off and on.")] = 5,
    seed: Annotated[int, SeedOption] = 0,
    as_json: Annotated[bool, JsonOption] = False,
) -> int:
    """CPU time of the scheduler's thread and of the process, journaling on over off, in turns (ratios)."""
    from kvledger.tools.bench.recording import traffic
    from kvledger.tools.bench.trace import bench_trace

    with progress_bar() as progress:
        work = traffic(trace=trace, requests=requests, seed=seed)
        report = bench_trace(work, repeats=repeats, progress=progress)
    if as_json:
        print_json(report)
    else:
        _print_trace(report)
    return OK


def _print_trace(report: "TraceReport") -> None:
    console = page()
    console.print(str(report.environment))
    console.print(
        f"{report.workload}: {report.requests:,} requests, {report.calls:,} cache calls, "
        f"{report.events:,} events, {report.repeats} rounds"
    )
    calls = figures_table(
        "journaling", "CPU s", "median µs/call", "p99 µs/call", "CPU ratio", "wall s", "wall ratio"
    )
    each = figures_table(
        "journaling", "flush CPU s", "thread µs/request", "ratio", "process µs/request", "ratio"
    )
    for figure in report.figures:
        calls.add_row(
            figure.journaling,
            f"{figure.cpu_seconds:.3f}",
            f"{figure.cpu_median_us:.1f}",
            f"{figure.cpu_p99_us:.1f}",
            f"{figure.cpu_ratio:.3f}",
            f"{figure.wall_seconds:.3f}",
            f"{figure.wall_ratio:.3f}",
        )
        each.add_row(
            figure.journaling,
            f"{figure.flush_cpu_seconds:.3f}",
            f"{figure.thread_us_per_request:,.0f}",
            f"{figure.thread_ratio:.3f}",
            f"{figure.process_us_per_request:,.0f}",
            f"{figure.process_ratio:.3f}",
        )
    console.print(calls)
    console.print(each)
