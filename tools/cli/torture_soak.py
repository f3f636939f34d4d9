"""`kvledger torture soak`: a long run at constant live state; do memory and time stay what they were?"""

from enum import StrEnum
from typing import Annotated

import typer

from kvledger.tools.cli.output import OK, VIOLATION, JsonOption, print_json, progress_bar


class EvictionChoice(StrEnum):
    """In which order nodes go."""

    LRU = "lru"
    LRU_2 = "lru-2"


def soak_command(
    ops: Annotated[int, typer.Option("--ops", min=1, help="Calls of the cache.")] = 2_000_000,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Names the workload.")] = 0,
    eviction: Annotated[
        EvictionChoice, typer.Option("--eviction", help="In which order nodes go.")
    ] = EvictionChoice.LRU,
    journal: Annotated[
        bool, typer.Option("--journal/--no-journal", help="Record into a temporary file.")
    ] = True,
    as_json: Annotated[bool, JsonOption] = False,
) -> int:
    """Serve conversations for long, recorded, with pools that are always full.

    Exit status: 0 memory stayed within 5 % of what it was after the first tenth, 1 it grew, 2 could not run.
    """
    from kvledger.tools.torture.soak import PARTS, SoakSetup, soak

    setup = SoakSetup(ops, seed, "lru-2" if eviction is EvictionChoice.LRU_2 else "lru", journal)
    with progress_bar() as progress:
        report = soak(setup, progress=progress)
    if as_json:
        print_json(report)
        return OK if report.passed else VIOLATION
    typer.echo(f"operations     {report.operations:,}, eviction {report.eviction}")
    typer.echo(f"journal        {report.events:,} events")
    typer.echo("tenth  operations  us per operation  resident MiB  live objects   nodes")
    for number, part in enumerate(report.parts, start=1):
        objects = "" if part.objects is None else f"{part.objects:,}"
        typer.echo(
            f"{number:>3}/{PARTS}  {part.operations:>9,}  {part.us_per_operation:>16.2f}"
            f"  {part.resident_bytes / 2**20:>12.1f}  {objects:>12}  {part.nodes:>6,}"
        )
    typer.echo(
        f"memory grew by {report.growth:.1%} after the first tenth, {report.most_growth:.0%} is the limit"
    )
    typer.echo("torture: " + ("pass" if report.passed else "fail"))
    return OK if report.passed else VIOLATION
