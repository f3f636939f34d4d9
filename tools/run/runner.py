"""The main job: a workload through the reference scheduler, journaling on, then the audit."""

import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from kvledger.core import CacheConfig, HybridCache, KVLayout
from kvledger.core.errors import CacheError, InvalidArgument, JournalError
from kvledger.journal import Journal
from kvledger.journal.durability import Durability
from kvledger.journal.keeper import DEFAULT_CHECKPOINT_EVENTS
from kvledger.journal.tokens import TokenPolicy, check_policy
from kvledger.tools.audit.judge import judge
from kvledger.tools.engine.differences import LogitsReport
from kvledger.tools.engine.library import require_transformers
from kvledger.tools.engine.logits import LogitsCheck, run_alone
from kvledger.tools.kv.check import KVCheck
from kvledger.tools.kv.synthetic import KVCodec
from kvledger.tools.progress import Progress
from kvledger.tools.run.interrupt import interrupt_between_steps
from kvledger.tools.run.report import RunReport
from kvledger.tools.scheduler import Scheduler, SchedulerSettings
from kvledger.tools.scheduler.forward import Forward, NoForward, SyntheticForward
from kvledger.tools.scheduler.meter import Meter
from kvledger.tools.scheduler.tap import TapSink
from kvledger.tools.scheduler.watch import Watch
from kvledger.tools.workload.spec import Workload

if TYPE_CHECKING:
    from kvledger.tools.engine.forward import FittedModel


@dataclass(frozen=True, slots=True)
class RunSetup:
    """All that a run depends on besides its workload.

    `database` is a URL or a path; `tokens`, `token_key` and `checkpoint_every` are for `Journal.record`. With
    `verify_kv` False nothing that was computed is checked. `model` names one of
    `kvledger.tools.engine.models`, whose layout the configuration has to have; None writes synthetic KV,
    where it is checked.
    """

    config: CacheConfig
    settings: SchedulerSettings
    database: str
    name: str
    durability: Durability = "step"
    tokens: TokenPolicy = "full"
    token_key: bytes | None = None
    checkpoint_every: int = DEFAULT_CHECKPOINT_EVENTS
    verify_kv: bool = True
    model: str | None = None


class RunInterrupted(Exception):
    """SIGINT stopped a run. Its journal is closed: `journal` in `database`, on disk up to `durable_seq`."""

    def __init__(self, database: str, journal: int, durable_seq: int) -> None:
        self.database = database
        self.journal = journal
        self.durable_seq = durable_seq
        super().__init__(
            f"interrupted; journal {journal} in {database} is durable to seq {durable_seq}; "
            f"`kvledger audit {database}` reads it"
        )

    def __reduce__(self) -> tuple[type["RunInterrupted"], tuple[str, int, int]]:
        return type(self), (self.database, self.journal, self.durable_seq)


def run_workload(setup: RunSetup, workload: Workload, *, progress: Progress | None = None) -> RunReport:
    """Run, audit, and report. A new journal is added to the database; what is there stays.

    What goes wrong while requests are served, in the cache or with the store, is no error but `stopped` in
    the report, and what is in the journal by then is audited; a violation or wrong KV is part of the report
    as well. Raises InvalidArgument for a device or a configuration that cannot be used, JournalError where
    nothing could be stored or what was cannot be read, and RunInterrupted.
    """
    _check_device(setup.config.device)
    with one_torch_thread():
        return _run(setup, workload, progress)


def _run(setup: RunSetup, workload: Workload, progress: Progress | None) -> RunReport:
    meter = Meter()
    interrupted = False
    stopped = None
    lost: JournalError | None = None
    check_policy(setup.tokens, setup.token_key)
    model = None if setup.model is None else _built(setup.model, setup.config)
    with Journal.open(setup.database, create=True) as journal:
        database = journal.name
        with (
            journal.record(
                name=setup.name,
                durability=setup.durability,
                tokens=setup.tokens,
                key=setup.token_key,
                checkpoint_every=setup.checkpoint_every,
                drain_on_sigterm=threading.current_thread() is threading.main_thread(),
            ) as recorder,
            interrupt_between_steps() as raise_if_asked,
        ):
            tap = TapSink(recorder, meter)
            cache = HybridCache(setup.config, sink=tap)
            engine = _engine(setup, cache, model)
            flush = meter.timed_journal(recorder.flush)

            def end_step() -> None:
                flush()
                raise_if_asked()

            scheduler = Scheduler(
                cache,
                settings=setup.settings,
                forward=engine.forward,
                watch=Watch(
                    engine.kv,
                    window=setup.config.sliding_window,
                    page_size=setup.config.page_size,
                    full_pages=setup.config.full_pages,
                ),
                tap=tap,
                meter=meter,
                flush=end_step,
            )
            try:
                scheduler.run(workload, progress=progress)
                raise_if_asked()
            except KeyboardInterrupt:
                interrupted = True
            except Exception as error:
                stopped = _in_words(error)
            try:
                recorder.close()
            except JournalError as error:
                lost = error
                stopped = stopped or _in_words(error)
        if lost is not None and (interrupted or not recorder.durable_seq):
            raise lost
        try:
            if interrupted:
                raise KeyboardInterrupt
            logits = None if engine.logits is None else engine.logits()
            verdict = judge(journal, recorder.journal_id, progress=progress)
        except KeyboardInterrupt:
            raise RunInterrupted(database, recorder.journal_id, recorder.durable_seq) from None
        except JournalError as error:
            if lost is None:
                raise
            raise JournalError(f"{lost}; what is stored cannot be audited now: {error}") from lost
    counts, stats, written = scheduler.counts, cache.stats(), recorder.counters
    check = engine.kv
    return RunReport(
        journal=recorder.journal_id,
        name=setup.name,
        database=database,
        stopped=stopped,
        requests=counts.requests,
        finished=counts.finished,
        aborts=counts.aborts,
        rejected=counts.rejected,
        steps=counts.steps,
        prompt_tokens=counts.prompt_tokens,
        output_tokens=counts.output_tokens,
        hit_tokens=counts.hit_tokens,
        hit_ratio=counts.hit_tokens / counts.prompt_tokens if counts.prompt_tokens else 0.0,
        evicted_full=stats.evicted_full_tokens,
        evicted_swa=stats.evicted_swa_tokens,
        slid_tokens=counts.slid_tokens,
        tombstones=stats.tombstones,
        recoveries=stats.recoveries,
        recoveries_locked=stats.recoveries_locked,
        rollbacks=stats.rollbacks,
        anomalies=stats.anomalies,
        refused=counts.refused_tokens,
        retractions=counts.retractions,
        refreshes=counts.refreshes,
        branch_points=counts.branch_points,
        mixed_nodes=stats.mixed_nodes,
        events=tap.events,
        transactions=tap.transactions,
        durable_seq=recorder.durable_seq,
        bytes_per_event=round(written.bytes / written.events, 1) if written.events else 0.0,
        cache_seconds=round(meter.cache_seconds, 6),
        journal_seconds=round(meter.journal_seconds, 6),
        journal_writer_seconds=round(written.cpu_seconds, 6),
        kv_reads=None if check is None else check.reads,
        kv_wrong=None if check is None else check.wrong,
        kv_findings=[] if check is None else [str(finding) for finding in check.findings],
        logits=logits,
        audit=verdict,
    )


def _in_words(error: Exception) -> str:
    """What stopped a run. For what is no error of the cache's own, the line that raised it says most."""
    sentence = " ".join(str(error).split())
    if isinstance(error, CacheError):
        return f"{type(error).__name__}: {sentence}"
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {sentence} ({Path(frame.filename).name}, line {frame.lineno})"


def _check_device(device: str) -> None:
    """Refuse a device that holds no tensors here, before a journal is started for it."""
    try:
        torch.zeros(1, device=device).cpu()
    except (RuntimeError, AssertionError) as error:
        # torch raises AssertionError where it was built without the backend.
        raise InvalidArgument(f"device {device!r} cannot be used here: {error}") from error


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """A step's batch is small: waking torch's other threads costs far more than they bring."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(frozen=True, slots=True)
class _Engine:
    """The forward pass, and what checks it: the KV it wrote, or the logits it computed."""

    forward: Forward
    kv: KVCheck | None = None
    logits: Callable[[], LogitsReport] | None = None


def _built(name: str, config: CacheConfig) -> "FittedModel":
    """The model, before a journal is started for it: it may be missing, or need another cache."""
    require_transformers()
    # Imported here because transformers is an extra, and takes seconds to load.
    from kvledger.tools.engine.forward import fit
    from kvledger.tools.engine.models import build_model

    dtype = "float32" if config.layout is None else config.layout.dtype
    model = build_model(name, window=config.sliding_window, dtype=dtype, device=config.device)
    return fit(model, config)


def _engine(setup: RunSetup, cache: HybridCache, model: "FittedModel | None") -> _Engine:
    layout: KVLayout | None = setup.config.layout
    if model is not None:
        return _model_engine(setup, cache, model)
    if layout is None or not setup.verify_kv:
        return _Engine(NoForward())
    codec = KVCodec(layout, setup.config.device)
    return _Engine(SyntheticForward(cache, layout, codec), kv=KVCheck(cache, layout, codec))


def _model_engine(setup: RunSetup, cache: HybridCache, model: "FittedModel") -> _Engine:
    from kvledger.tools.engine.forward import ModelForward

    if not setup.verify_kv:
        return _Engine(ModelForward(cache, model, check=None))
    check = LogitsCheck(run_alone(model.model))

    def logits() -> LogitsReport:
        """What is left of a run that stopped is compared as well."""
        check.settle_rest()
        return check.report(model=str(setup.model), dtype=model.layout.dtype)

    return _Engine(ModelForward(cache, model, check=check), logits=logits)
