"""`kvledger torture`: does the journal keep its promises when things break?"""

from enum import StrEnum
from typing import Annotated

import typer

from kvledger.tools.cli.output import OK, VIOLATION, JsonOption, print_json, progress_bar
from kvledger.tools.cli.run import DurabilityChoice
from kvledger.tools.cli.torture_sim import sim_command
from kvledger.tools.cli.torture_soak import soak_command

torture_app = typer.Typer(help="Break things around a journal, and check what it promises.")


class StoreChoice(StrEnum):
    """Which kind of database."""

    SQLITE = "sqlite"
    POSTGRESQL = "postgresql"


torture_app.command("sim")(sim_command)
torture_app.command("soak")(soak_command)


@torture_app.command("kill")
def kill_command(
    runs: Annotated[int, typer.Option("--runs", min=1, help="How many processes to kill.")] = 50,
    engine: Annotated[StoreChoice, typer.Option("--engine", help="Where they record.")] = StoreChoice.SQLITE,
    durability: Annotated[
        DurabilityChoice, typer.Option("--durability", help="What a killed process may lose")
    ] = DurabilityChoice.STEP,
    apart: Annotated[
        bool, typer.Option("--apart", help="With a process that stores, which is not killed (step only).")
    ] = False,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Names workloads and moments.")] = 0,
    db: Annotated[
        str | None,
        typer.Option("--db", help="A store, by URL. Default: one of its own, which is removed afterwards."),
    ] = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> int:
    """Kill recording processes with SIGKILL at random moments; audit what each of them left.

    Exit status: 0 nothing durable was missing and every audit passed, 1 otherwise, 2 could not run.
    """
    from kvledger.tools.torture.kill import KillSetup, kill_repeatedly

    setup = KillSetup(runs, engine.value, durability.value, seed, url=db, apart=apart)
    with progress_bar() as progress:
        summary = kill_repeatedly(setup, progress=progress)
    if as_json:
        print_json(summary)
        return OK if summary.passed else VIOLATION
    typer.echo(f"killed             {summary.killed} of {summary.runs} recording into {summary.engine}")
    typer.echo(f"durability         {summary.durability}{', in a process apart' * summary.apart}")
    typer.echo(f"events accepted    {summary.events_accepted:,}")
    typer.echo(f"       durable     {summary.events_durable:,}, of which {summary.missing_durable:,} missing")
    typer.echo(f"       stored      {summary.events_stored:,}")
    typer.echo(f"       lost        {summary.events_lost:,}, at most {summary.most_lost:,} in one run")
    typer.echo(
        f"audits passed      {summary.audits_passed} of {summary.runs}, {summary.events_audited:,} events; "
        f"{summary.empty_journals} journals were empty"
    )
    for fault in summary.faults:
        typer.echo(f"FAULT              {fault}")
    typer.echo("torture: " + ("pass" if summary.passed else "fail"))
    return OK if summary.passed else VIOLATION
