"""`kvledger bench hits`: how much of the prompts each order of eviction finds, and what some would find."""

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
    from kvledger.tools.bench.hits import HitsReport


def bench_hits_command(
    trace: Annotated[Path | None, TraceOption] = None,
    requests: Annotated[int, typer.Option("--requests", min=1, help="How many requests.")] = 400,
    page_size: Annotated[
        int | None, typer.Option("--page-size", min=1, help="Tokens. Default: by the workload, as all sizes.")
    ] = None,
    window: Annotated[int | None, typer.Option("--window", min=1, help="Tokens.")] = None,
    full_tokens: Annotated[int | None, typer.Option("--full-tokens", min=1, help="The Full pool.")] = None,
    swa_tokens: Annotated[int | None, typer.Option("--swa-tokens", min=1, help="The SWA pool.")] = None,
    max_prompt: Annotated[
        int, typer.Option("--max-prompt", min=1, help="Longer prompts are cut to so many tokens.")
    ] = 32_768,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, help="Most that run at once.")] = 4,
    seed: Annotated[int, SeedOption] = 0,
    as_json: Annotated[bool, JsonOption] = False,
) -> int:
    """Hit ratio of every order of eviction, against no limits, an oracle, and orders that are simulated."""
    from kvledger.core import CacheConfig
    from kvledger.tools.bench.hits import bench_hits
    from kvledger.tools.bench.recording import traffic

    with progress_bar() as progress:
        work = traffic(trace=trace, requests=requests, seed=seed)
        report = bench_hits(
            list(work.requests),
            workload=work.name,
            config=CacheConfig(
                page_size=page_size or work.preset.page_size,
                sliding_window=window or work.preset.window,
                full_tokens=full_tokens or work.preset.full_tokens,
                swa_tokens=swa_tokens or work.preset.swa_tokens,
            ),
            concurrency=concurrency,
            max_prompt=max_prompt,
            progress=progress,
        )
    if as_json:
        print_json(report)
    else:
        _print_hits(report)
    return OK


def _print_hits(report: "HitsReport") -> None:
    from kvledger.tools.bench.hits_simulated import HISTORY_POOLS

    console = page()
    console.print(str(report.environment))
    console.print(
        f"{report.workload}: {report.requests:,} requests, {report.bounds.prompt_tokens:,} prompt tokens; "
        f"pages of {report.page_size}, window {report.window}, Full {report.full_tokens:,}, "
        f"SWA {report.swa_tokens:,}, {report.concurrency} at once"
    )
    console.print(
        f"without limits {report.unlimited_ratio:.2%}, an oracle in this Full pool {report.oracle_ratio:.2%}"
    )
    table = figures_table(
        "publishing, eviction",
        "hits",
        "of oracle",
        "of unlimited",
        "lost to SWA",
        "refused",
        "CPU µs/request",
    )
    for figure in report.figures:
        table.add_row(
            f"{figure.publishing}, {figure.eviction}",
            f"{figure.hit_ratio:.2%}",
            f"{figure.share_of_oracle:.1%}",
            f"{figure.share_of_unlimited:.1%}",
            f"{figure.lost_to_swa:.2%}",
            f"{figure.refused:,}",
            f"{figure.cpu_us_per_request:,.0f}",
        )
    console.print(table)
    console.print(
        "simulated only, without tree or windows, in a pool short of Full pages alone; one pool of units is "
        f'remembered, {HISTORY_POOLS} where it says "long"'
    )
    table = figures_table("simulated order", "hits", "of oracle", "of unlimited")
    for order in report.simulated:
        table.add_row(
            order.order,
            f"{order.hit_ratio:.2%}",
            f"{order.share_of_oracle:.1%}",
            f"{order.share_of_unlimited:.1%}",
        )
    console.print(table)
