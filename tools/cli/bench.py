"""`kvledger bench`: what the cache and its journal cost."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvledger.tools.cli.bench_device import bench_device_command
from kvledger.tools.cli.bench_hits import bench_hits_command
from kvledger.tools.cli.bench_replay import bench_replay_command
from kvledger.tools.cli.bench_size import bench_memory_command, bench_scale_command
from kvledger.tools.cli.bench_trace import bench_trace_command
from kvledger.tools.cli.extras import needs_api
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
from kvledger.tools.cli.run import ModelChoice

if TYPE_CHECKING:
    from kvledger.tools.bench.fingerprints import FingerprintReport
    from kvledger.tools.bench.inspect import InspectReport
    from kvledger.tools.bench.journal import JournalReport
    from kvledger.tools.bench.ops import OpsReport
    from kvledger.tools.bench.provenance import ProvenanceReport

bench_app = typer.Typer(help="Measure what the cache and its journal cost.")
bench_app.command("replay")(bench_replay_command)
bench_app.command("hits")(bench_hits_command)
bench_app.command("device")(bench_device_command)
bench_app.command("trace")(bench_trace_command)
bench_app.command("scale")(bench_scale_command)
bench_app.command("memory")(bench_memory_command)


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
        _print_ops(report)
    return OK


@bench_app.command("journal")
def bench_journal_command(
    trace: Annotated[Path | None, TraceOption] = None,
    requests: Annotated[int, typer.Option("--requests", min=1, help="How many requests.")] = 1_600,
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="How often all of it is done.")] = 3,
    seed: Annotated[int, SeedOption] = 0,
    as_json: Annotated[bool, JsonOption] = False,
) -> int:
    """Events per second written, replayed and audited, and bytes per event."""
    from kvledger.tools.bench.journal import bench_journal
    from kvledger.tools.bench.recording import traffic

    with progress_bar() as progress:
        work = traffic(trace=trace, requests=requests, seed=seed)
        report = bench_journal(work, repeats=repeats, progress=progress)
    if as_json:
        print_json(report)
    else:
        _print_journal(report)
    return OK


@bench_app.command("provenance")
def bench_provenance_command(
    model: Annotated[
        ModelChoice, typer.Option("--model", help="A model with random weights.")
    ] = ModelChoice.GEMMA3,
    requests: Annotated[int, typer.Option("--requests", min=1, help="How many requests.")] = 400,
    seed: Annotated[int, SeedOption] = 0,
    as_json: Annotated[bool, JsonOption] = False,
) -> int:
    """How far a model's logits move where Full and SWA of a node come from different requests."""
    from kvledger.tools.engine.library import require_transformers

    require_transformers()
    from kvledger.tools.bench.provenance import bench_provenance

    with progress_bar() as progress:
        report = bench_provenance(model=model.value, requests=requests, seed=seed, progress=progress)
    if as_json:
        print_json(report)
    else:
        _print_provenance(report)
    return OK


@bench_app.command("fingerprints")
def bench_fingerprints_command(
    repeats: Annotated[int, typer.Option("--repeats", min=1, help="Measurements per figure.")] = 40,
    device: Annotated[str, typer.Option("--device", help="Where the KV lives, in torch's words.")] = "cpu",
    seed: Annotated[int, typer.Option("--seed", min=0, help="Names the prompts.")] = 0,
    as_json: Annotated[bool, JsonOption] = False,
) -> int:
    """What fingerprints of locked KV add to a lock and its release, off and on in turns."""
    from kvledger.tools.bench.fingerprints import bench_fingerprints

    with progress_bar() as progress:
        report = bench_fingerprints(repeats=repeats, seed=seed, device=device, progress=progress)
    if as_json:
        print_json(report)
    else:
        _print_fingerprints(report)
    return OK


@bench_app.command("inspect")
def bench_inspect_command(
    events: Annotated[
        int,
        typer.Option("--events", min=0, help="Events of the journal whose past is asked for; 0 skips that."),
    ] = 1_000_000,
    questions: Annotated[int, typer.Option("--questions", min=1, help="Past seqs asked for.")] = 200,
    requests: Annotated[
        int, typer.Option("--requests", min=1, help="Requests that the watched scheduler serves in each run.")
    ] = 1_600,
    repeats: Annotated[
        int, typer.Option("--repeats", min=0, help="Rounds of watched runs; 0 skips them.")
    ] = 3,
    rate: Annotated[float, typer.Option("--rate", min=0.1, help="Questions a second under load.")] = 50.0,
    seed: Annotated[int, SeedOption] = 0,
    as_json: Annotated[bool, JsonOption] = False,
) -> int:
    """How fast a past state is answered, and what an inspector under load takes from the scheduler."""
    with needs_api("bench inspect"):
        from kvledger.tools.bench.inspect import bench_inspect
    from kvledger.tools.bench.recording import traffic

    with progress_bar() as progress:
        report = bench_inspect(
            traffic(trace=None, requests=requests, seed=seed),
            events=events,
            questions=questions,
            repeats=repeats,
            rate=rate,
            seed=seed,
            progress=progress,
        )
    if as_json:
        print_json(report)
    else:
        _print_inspect(report)
    return OK


def _print_ops(report: "OpsReport") -> None:
    console = page()
    console.print(str(report.environment))
    console.print(f"window {report.window}, seed {report.seed}, {report.repeats} measurements per figure")
    table = figures_table("operation", "page", "tokens", "journal", "median µs", "p99 µs")
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


def _print_journal(report: "JournalReport") -> None:
    console = page()
    console.print(str(report.environment))
    console.print(
        f"{report.workload}: {report.requests:,} requests, {report.transactions:,} transactions, "
        f"{report.events:,} events over {report.pages:,} pages, {report.repeats} times"
    )
    console.print(
        f"bytes per event: {report.payload_bytes_per_event} stored, {report.file_bytes_per_event} on disk; "
        f"an append: {report.append_median_us} µs, p99 {report.append_p99_us} µs"
    )
    table = figures_table(
        "one core", "events/s", "pages/s", "median µs", "p99 µs", "wall events/s", "median µs", "p99 µs"
    )
    for figure in report.figures:
        table.add_row(
            figure.work,
            f"{figure.events_per_cpu_second:,}",
            f"{figure.pages_per_cpu_second:,}",
            f"{figure.cpu_median_us:.2f}",
            f"{figure.cpu_p99_us:.2f}",
            f"{figure.events_per_second:,}",
            f"{figure.wall_median_us:.2f}",
            f"{figure.wall_p99_us:.2f}",
        )
    console.print(table)


def _print_provenance(report: "ProvenanceReport") -> None:
    console = page()
    console.print(f"{report.environment}, transformers {report.transformers}")
    console.print(
        f"{report.model}, built-in, seed {report.seed}: {report.requests:,} requests, pages of "
        f"{report.page_size}, window {report.window}, {report.recoveries_locked:,} recoveries under lock"
    )
    table = figures_table("dtype, read", "requests", "differing", "positions", "largest", "mean", "NaN")
    for figure in report.figures:
        table.add_row(
            f"{figure.dtype}, {figure.read}",
            f"{figure.requests:,}",
            f"{figure.differing:,}",
            f"{figure.positions:,}",
            "-" if figure.largest is None else f"{figure.largest:.2g}",
            "-" if figure.mean is None else f"{figure.mean:.2g}",
            f"{figure.nans:,}",
        )
    console.print(table)


def _print_fingerprints(report: "FingerprintReport") -> None:
    console = page()
    layout = report.layout
    console.print(str(report.environment))
    console.print(
        f"{len(layout.full_layers)} Full and {len(layout.swa_layers)} SWA layers, {layout.kv_heads} heads of "
        f"{layout.head_dim}, {layout.dtype} on {report.device}; {report.repeats} measurements per figure"
    )
    table = figures_table(
        "acquire + release",
        "tokens",
        "pages",
        "KiB a page",
        "off µs",
        "on µs",
        "ratio",
        "added µs a page",
        "GB/s",
    )
    for figure in report.figures:
        table.add_row(
            f"pages of {figure.page_size}",
            f"{figure.tokens:,}",
            f"{figure.pages:,}",
            f"{figure.page_bytes / 1024:,.0f}",
            f"{figure.off_us:,.1f}",
            f"{figure.on_us:,.1f}",
            f"{figure.ratio:,.1f}",
            f"{figure.added_us_per_page:,.2f}",
            f"{figure.bytes_per_us / 1e3:.2f}",
        )
    console.print(table)


def _print_inspect(report: "InspectReport") -> None:
    console = page()
    console.print(str(report.environment))
    past = report.past
    if past is not None:
        console.print(
            f"tree at {past.questions:,} past seqs of {past.events:,} events, {past.nodes:,} nodes at last, "
            f"followed in {past.warm_seconds} s, {past.snapshots} snapshots"
        )
        table = figures_table("an answer", "median ms", "p99 ms", "worst ms")
        table.add_row("wall", f"{past.median_ms:,.1f}", f"{past.p99_ms:,.1f}", f"{past.worst_ms:,.1f}")
        table.add_row("CPU", f"{past.cpu_median_ms:,.1f}", f"{past.cpu_p99_ms:,.1f}", "")
        console.print(table)
    if not report.looks:
        return
    console.print(
        f"{report.workload}: {report.requests:,} requests, {report.calls:,} cache calls, "
        f"{report.repeats} rounds, durability {report.durability}, {report.rate:g} questions a second, "
        f"share {report.share}"
    )
    table = figures_table("inspector", "wall s", "wall ratio", "CPU s", "CPU ratio")
    for figure in report.looks:
        table.add_row(
            figure.way,
            f"{figure.wall_seconds:.3f}",
            f"{figure.wall_ratio:.3f}",
            f"{figure.cpu_seconds:.3f}",
            f"{figure.cpu_ratio:.3f}",
        )
    console.print(table)
    for load in report.loads:
        statuses = ", ".join(f"{status}: {count:,}" for status, count in sorted(load.statuses.items()))
        console.print(
            f"load: {load.per_second:g}/s for {load.seconds:g} s, median {load.median_ms:,.1f} ms, "
            f"p99 {load.p99_ms:,.1f} ms, {load.late:,} missed; {statuses}"
        )
