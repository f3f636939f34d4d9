"""A summary in lines, for whoever reads a terminal."""

from collections.abc import Iterator

from kvledger.tools.torture.sim.summary import FailureReport, SimulationSummary


def tell(summary: SimulationSummary) -> Iterator[str]:
    """The summary, failures last."""
    last = summary.first_seed + summary.seeds - 1
    seeds = f"seed {last}" if summary.seeds == 1 else f"seeds {summary.first_seed} to {last}"
    yield f"simulated      {seeds}, {summary.operations_per_seed:,} operations each"
    yield f"operations     {summary.operations:,}, {summary.idle_operations:,} with nothing to work on"
    parts = {"by kind": summary.by_kind, "faults": summary.faults, "seen": summary.observed}
    for name, counts in parts.items():
        yield name
        width = max(map(len, counts), default=0)
        for what, times in counts.items():
            yield f"  {what:{width}}  {times:>12,}"
    yield f"journal digest {summary.digest}"
    for failure in summary.failures:
        yield ""
        yield from tell_failure(failure)
    failed = f"fail, {len(summary.failures)} of {summary.seeds:,} seeds"
    yield f"torture: {'pass' if summary.passed else failed}"


def tell_failure(failure: FailureReport) -> Iterator[str]:
    """One failure: what it was, what led to it, and the command that repeats it."""
    where = "at the end" if failure.operation < 0 else f"at operation {failure.operation}, {failure.kind}"
    yield f"FAILED         seed {failure.seed} {where}: {failure.check}: {failure.sentence}"
    yield f"setting        {failure.setting}"
    for step in failure.steps:
        first, *rest = step.did or ["nothing to work on"]
        yield f"  {step.number:>6}  {step.kind:13} {first}"
        for line in rest:
            yield f"  {'':6}  {'':13} {line}"
    yield f"repeat         {failure.command}"
