"""`kvledger run`: the main job."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kvledger.tools.cli.output import (
    COULD_NOT_RUN,
    OK,
    VIOLATION,
    Interrupted,
    JsonOption,
    complain,
    page,
    print_json,
    progress_bar,
    read_small_file,
)

DEFAULT_DATABASE = "kvledger-run.db"


class DurabilityChoice(StrEnum):
    """When a step's events are on disk."""

    COMMIT = "commit"
    STEP = "step"
    BACKGROUND = "background"


class TokensChoice(StrEnum):
    """What the journal keeps of token ids and namespaces."""

    FULL = "full"
    HASH = "hash"
    NONE = "none"


class RecoveryChoice(StrEnum):
    """What becomes of an SWA tombstone whose Full is locked."""

    REMAP = "remap"
    SKIP = "skip"


class EvictionChoice(StrEnum):
    """The order in which nodes go when a pool runs short."""

    LRU = "lru"
    LRU_2 = "lru-2"


class EngineChoice(StrEnum):
    """What computes KV."""

    SYNTHETIC = "synthetic"
    TRANSFORMERS = "transformers"


class ModelChoice(StrEnum):
    """A model with random weights, built here; see `kvledger.tools.engine.models`."""

    GEMMA3 = "gemma3-tiny"
    GEMMA2 = "gemma2-tiny"
    GPT_OSS = "gpt-oss-tiny"


def run_command(
    trace: Annotated[
        Path | None,
        typer.Option("--trace", help="A Mooncake trace. Default: a built-in workload."),
    ] = None,
    requests: Annotated[
        int | None,
        typer.Option("--requests", min=1, help="How many requests. Default: 400, or 1000 of a trace."),
    ] = None,
    page_size: Annotated[
        int | None,
        typer.Option("--page-size", min=1, help="Page size, tokens. Default: 16, 64 for a trace."),
    ] = None,
    window: Annotated[
        int | None,
        typer.Option("--window", min=1, help="Sliding window in tokens. Default: 128, or 1024 for a trace."),
    ] = None,
    full_tokens: Annotated[
        int | None,
        typer.Option(
            "--full-tokens", min=1, help="Full pool, tokens. Default: 24576, or 409600 for a trace."
        ),
    ] = None,
    swa_tokens: Annotated[
        int | None,
        typer.Option("--swa-tokens", min=1, help="SWA pool, tokens. Default: 6144, or 102400 for a trace."),
    ] = None,
    token_budget: Annotated[
        int | None,
        typer.Option("--token-budget", min=1, help="Tokens per step. Default: 512, or 2048 for a trace."),
    ] = None,
    locked_recovery: Annotated[
        RecoveryChoice, typer.Option("--locked-recovery", help="What a commit does with locked tombstones")
    ] = RecoveryChoice.REMAP,
    eviction: Annotated[
        EvictionChoice, typer.Option("--eviction", help="What goes first when a pool runs short")
    ] = EvictionChoice.LRU,
    device: Annotated[str, typer.Option("--device", help="Where the KV lives, in torch's words.")] = "cpu",
    seed: Annotated[int, typer.Option("--seed", min=0, help="Names the built-in workload.")] = 0,
    db: Annotated[
        str, typer.Option("--db", help="Database, by URL or path. A new journal is added to it.")
    ] = DEFAULT_DATABASE,
    durability: Annotated[
        DurabilityChoice, typer.Option("--durability", help="What a killed process may lose")
    ] = DurabilityChoice.STEP,
    tokens: Annotated[
        TokensChoice, typer.Option("--tokens", help="What the journal keeps of tokens and namespaces")
    ] = TokensChoice.FULL,
    token_key_file: Annotated[
        Path | None,
        typer.Option("--token-key-file", help="The key for --tokens hash: 16 to 64 bytes, the whole file."),
    ] = None,
    checkpoint_every: Annotated[
        int | None,
        typer.Option("--checkpoint-every", min=0, help="Events between two stored full states, 0 for none."),
    ] = None,
    engine: Annotated[
        EngineChoice,
        typer.Option("--engine", help="What computes KV: transformers is a model, on a thinned workload."),
    ] = EngineChoice.SYNTHETIC,
    model: Annotated[
        ModelChoice, typer.Option("--model", help="What --engine transformers runs.")
    ] = ModelChoice.GEMMA3,
    verify_kv: Annotated[
        bool,
        typer.Option(
            "--verify-kv/--no-verify-kv",
            help="Check what running requests would read; of a model, its logits.",
        ),
    ] = True,
    fingerprints: Annotated[
        bool,
        typer.Option("--fingerprints", help="Journal checksums of locked KV, for the audit to compare."),
    ] = False,
    as_json: Annotated[bool, JsonOption] = False,
) -> int:
    """Serve a workload through the cache with journaling on, then audit the journal.

    Exit status: 0 passed, 1 a violation, wrong KV or logits, or a cache or a store that failed in the
    middle, 2 could not run or nothing was served, 130 interrupted.
    """
    # Everything heavy is imported here, so that --help and mistakes answer at once.
    from kvledger.core.config import CacheConfig, KVLayout
    from kvledger.journal.keeper import DEFAULT_CHECKPOINT_EVENTS
    from kvledger.tools.engine.library import require_transformers
    from kvledger.tools.engine.workload import VOCABULARY, ThinnedWorkload
    from kvledger.tools.run.presets import BUILTIN, ENGINE, ENGINE_TRACE, TRACE
    from kvledger.tools.run.report import print_report
    from kvledger.tools.run.runner import RunInterrupted, RunSetup, run_workload
    from kvledger.tools.workload import Workload, builtin_workload
    from kvledger.tools.workload.trace import read_trace

    layout: KVLayout | None
    if engine is EngineChoice.SYNTHETIC:
        preset = BUILTIN if trace is None else TRACE
        layout = preset.layout if verify_kv else None
    else:
        require_transformers()
        from kvledger.tools.engine.models import layout_by_name

        preset = ENGINE if trace is None else ENGINE_TRACE
        layout = layout_by_name(model.value)
    config = CacheConfig(
        page_size=page_size or preset.page_size,
        sliding_window=window or preset.window,
        full_tokens=full_tokens or preset.full_tokens,
        swa_tokens=swa_tokens or preset.swa_tokens,
        device=device,
        locked_recovery=locked_recovery.value,
        eviction=eviction.value,
        layout=layout,
        fingerprints=fingerprints,
    )
    settings = preset.settings
    if token_budget is not None:
        settings = settings.model_copy(update={"token_budget": token_budget})
    count = requests or preset.requests
    workload: Workload
    if trace is None:
        name = f"run seed {seed}"
        workload = builtin_workload(count, seed=seed)
    else:
        name = f"run {trace.name}"
        workload = read_trace(trace, requests=count)
    if engine is EngineChoice.TRANSFORMERS:
        name = f"{name}, {model.value}"
        workload = ThinnedWorkload(workload, keep=preset.keep, hurry=preset.hurry, vocabulary=VOCABULARY)
    setup = RunSetup(
        config=config,
        settings=settings,
        database=db,
        name=name,
        durability=durability.value,
        checkpoint_every=DEFAULT_CHECKPOINT_EVENTS if checkpoint_every is None else checkpoint_every,
        tokens=tokens.value,
        token_key=None if token_key_file is None else read_small_file(token_key_file, what="token key"),
        verify_kv=verify_kv,
        model=model.value if engine is EngineChoice.TRANSFORMERS else None,
    )
    try:
        with progress_bar() as progress:
            report = run_workload(setup, workload, progress=progress)
    except RunInterrupted as interrupted:
        raise Interrupted(str(interrupted)) from interrupted
    if report.passed and report.rejected == report.requests:
        complain(
            f"nothing was served: each of the {report.requests:,} requests is too large for the pools; see "
            "--full-tokens and --swa-tokens"
        )
        return COULD_NOT_RUN
    if report.rejected:
        complain(
            f"{report.rejected:,} of {report.requests:,} requests were too large for the pools and not served"
        )
    if as_json:
        print_json(report)
    else:
        print_report(report, page())
    return OK if report.passed else VIOLATION
