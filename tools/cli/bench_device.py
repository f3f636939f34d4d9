"""`kvledger bench device`: how often the cache touches its device."""

from typing import TYPE_CHECKING, Annotated

import typer

from kvledger.core.errors import InvalidArgument
from kvledger.tools.cli.output import (
    OK,
    JsonOption,
    figures_table,
    page,
    print_json,
    progress_bar,
)

if TYPE_CHECKING:
    from kvledger.tools.bench.device import DeviceReport

NO_DEVICE = (
    "no CUDA device was there: these are operations of a processor, none of which moved anything to a device"
)
NOT_ASKED = "a CUDA device is there and was not asked for: these are operations of a processor"


def bench_device_command(
    device: Annotated[
        str | None, typer.Option("--device", help="cpu or cuda. Default: cuda where torch sees one.")
    ] = None,
    rounds: Annotated[int, typer.Option("--rounds", min=4, help="Rounds of requests that are served.")] = 100,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Names the workload.")] = 0,
    as_json: Annotated[bool, JsonOption] = False,
) -> int:
    """Copies per acquired prefix and mapping updates per commit, counted in a profile of every step."""
    try:
        from kvledger.tools.bench.device import bench_device
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise InvalidArgument("bench device needs torch, which is missing: pip install torch") from error

    with progress_bar() as progress:
        report = bench_device(rounds=rounds, seed=seed, device=device, progress=progress)
    if as_json:
        print_json(report)
    else:
        _print(report)
    return OK


def _print(report: "DeviceReport") -> None:
    console = page()
    console.print(str(report.environment))
    if report.device_name is not None:
        console.print(f"{report.device}: {report.device_name}")
    else:
        console.print(NOT_ASKED if report.cuda_available else NO_DEVICE)
    console.print(
        f"{report.rounds:,} rounds, seed {report.seed}, pages of {report.page_size}, window {report.window}, "
        f"{report.recoveries:,} recoveries; copies are {report.copies_are}, updates {report.updates_are}"
    )
    console.print(
        f"copies for each of {report.prefixes:,} acquired prefixes: {report.copies_per_prefix:g}; "
        f"mapping updates for each of {report.changing_commits:,} commits that changed the mapping: "
        f"{report.updates_per_changing_commit:g}, for each of {report.other_commits:,} that did not: "
        f"{report.updates_per_other_commit:g}; steps with another number: {report.deviations:,}"
    )
    table = figures_table(
        "step", "calls", "commits", "that change", "updates", "copies", "median µs", "p99 µs"
    )
    for figure in report.steps:
        counts = (figure.calls, figure.commits, figure.changing, figure.updates, figure.copies)
        table.add_row(
            figure.step,
            *(f"{count:,}" for count in counts),
            f"{figure.median_us:,.1f}",
            f"{figure.p99_us:,.1f}",
        )
    console.print(table)
