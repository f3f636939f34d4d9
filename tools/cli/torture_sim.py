"""`kvledger torture sim`: scheduler, cache, journal and store in one thread, with faults, from one number."""

import re
from typing import Annotated

import typer

from kvledger.core.errors import InvalidArgument
from kvledger.tools.cli.output import OK, VIOLATION, JsonOption, print_json, progress_bar

MOST_SEED = 2**63 - 1


def sim_command(
    seed: Annotated[int, typer.Option("--seed", min=0, help="The one seed to run.")] = 0,
    seeds: Annotated[
        str | None,
        typer.Option("--seeds", help="Many instead: A-B, both included, or how many from --seed on."),
    ] = None,
    ops: Annotated[int, typer.Option("--ops", min=1, help="Operations of each seed.")] = 2_000,
    only: Annotated[
        str | None, typer.Option("--only", help="Numbers of the operations to run, as a failure prints them.")
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, max=256, help="Processes that share the seeds.")] = 1,
    as_json: Annotated[bool, JsonOption] = False,
) -> int:
    """Simulate a cache and its journal under faults; everything follows from the seed.

    Exit status: 0 nothing was found, 1 a check failed (the command that repeats it is printed), 2 bad input.
    """
    from kvledger.tools.torture.sim.many import simulate
    from kvledger.tools.torture.sim.told import tell

    chosen = _seeds(seed, seeds)
    numbers = None if only is None else _only(only, ops, chosen)
    with progress_bar() as progress:
        summary = simulate(chosen, ops, only=numbers, jobs=min(jobs, len(chosen)), progress=progress)
    if as_json:
        print_json(summary)
    else:
        for line in tell(summary):
            typer.echo(line)
    return OK if summary.passed else VIOLATION


def _seeds(seed: int, seeds: str | None) -> range:
    if seeds is None:
        first, end = seed, seed + 1
    elif found := re.fullmatch(r"(\d{1,19})-(\d{1,19})", seeds):
        first, end = int(found[1]), int(found[2]) + 1
    elif re.fullmatch(r"\d{1,19}", seeds):
        first, end = seed, seed + int(seeds)
    else:
        raise InvalidArgument(f"--seeds is A-B or a count, not {seeds!r}")
    if not first < end <= MOST_SEED:
        raise InvalidArgument(f"there are no seeds from {first} to {end - 1}")
    return range(first, end)


def _only(only: str, ops: int, seeds: range) -> list[int]:
    if len(seeds) > 1:
        raise InvalidArgument("--only names operations of one seed: give --seed")
    if not re.fullmatch(r"\d{1,9}(,\d{1,9})*", only):
        raise InvalidArgument(f"--only is numbers with commas between them, not {only[:40]!r}")
    numbers = sorted({int(number) for number in only.split(",")})
    if numbers[-1] >= ops:
        raise InvalidArgument(f"operation {numbers[-1]} is none of the {ops} of --ops: they begin with 0")
    return numbers
