"""Kill a recording process at random moments and look at what it leaves behind.

Each run starts a process that serves a workload with journaling on, kills it with SIGKILL once it has
recorded a number of events drawn from the seed and a drawn moment has passed, and then opens the journal as
the next start would. All that was durable must be there, the chain must verify, and the audit must pass. With
a process that stores, all that was handed to it must be there once it has ended, which it does by itself.
"""

import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

import sqlalchemy as sa
from pydantic import BaseModel, ConfigDict

from kvledger.core.errors import CacheError, InvalidArgument, JournalError
from kvledger.journal import Journal
from kvledger.journal.database import store_url
from kvledger.journal.durability import Durability
from kvledger.journal.migration import migrate
from kvledger.tools.audit.judge import judge
from kvledger.tools.progress import Progress
from kvledger.tools.torture.postgresql_server import start_server
from kvledger.tools.torture.victim import ACCEPTED, DURABLE, JOURNAL, PLACES, WRITER, Orders, serve

Engine = Literal["sqlite", "postgresql"]

MOST_EVENTS = 2_500
"""The latest a victim is killed, in recorded events: past several evictions and some hundred commits."""

MOST_DELAY_SECONDS = 0.003
"""The longest wait after that, so that kills fall anywhere and not only where events are counted."""

LOOK_SECONDS = 0.000_2
"""How often the number of recorded events is looked at."""

START_SECONDS = 60.0
"""A victim that has recorded nothing by then has failed."""


@dataclass(frozen=True, slots=True)
class KillSetup:
    """What to do: `runs` kills of one engine in one durability mode; `url` names a store, None makes one.

    With `apart` the victims record through a process of its own, which is not killed.
    """

    runs: int
    engine: Engine
    durability: Durability
    seed: int
    url: str | None = None
    apart: bool = False


class KillSummary(BaseModel):
    """What came of a series of kills. All `events_*` are sums over the runs."""

    model_config = ConfigDict(frozen=True)

    engine: str
    durability: str
    apart: bool
    seed: int
    runs: int
    killed: int
    events_accepted: int
    events_durable: int
    events_stored: int
    events_lost: int
    most_lost: int
    missing_durable: int
    empty_journals: int
    audits_passed: int
    events_audited: int
    faults: list[str]

    @property
    def passed(self) -> bool:
        """Whether nothing was missing, and every journal was sound."""
        return not self.faults


@dataclass(slots=True)
class _Tally:
    killed: int = 0
    accepted: int = 0
    durable: int = 0
    stored: int = 0
    lost: int = 0
    most_lost: int = 0
    missing: int = 0
    empty: int = 0
    passed: int = 0
    audited: int = 0
    faults: list[str] = field(default_factory=list)


def kill_repeatedly(setup: KillSetup, *, progress: Progress | None = None) -> KillSummary:
    """Kill `setup.runs` victims, one after the other. Raises JournalError where no server can be had."""
    if setup.apart and setup.durability != "step":
        raise InvalidArgument("a process that stores is handed what it stores with each step")
    draw = random.Random(f"{setup.engine} {setup.durability} {setup.seed}")
    # Each victim is forked from a server that has everything imported and no thread running.
    context = get_context("forkserver")
    context.set_forkserver_preload(["__main__", "kvledger.tools.torture.victim"])
    tally = _Tally()
    with _store(setup) as url:
        for run in range(setup.runs):
            shared = context.RawArray("q", PLACES)
            orders = Orders(url, setup.durability, draw.randrange(1_000_000), apart=setup.apart)
            victim = context.Process(target=serve, args=(orders, shared), daemon=True)
            victim.start()
            try:
                _wait_for_events(victim, shared, draw.randrange(1, MOST_EVENTS))
                time.sleep(draw.random() * MOST_DELAY_SECONDS)
            finally:
                victim.kill()
                victim.join()
            tally.killed += victim.exitcode == -9
            _wait_for_writer(shared[WRITER])
            _examine(url, shared, f"run {run} (workload {orders.seed})", tally)
            if progress is not None:
                progress("kills", run + 1, setup.runs)
    return KillSummary(
        engine=setup.engine,
        durability=setup.durability,
        apart=setup.apart,
        seed=setup.seed,
        runs=setup.runs,
        killed=tally.killed,
        events_accepted=tally.accepted,
        events_durable=tally.durable,
        events_stored=tally.stored,
        events_lost=tally.lost,
        most_lost=tally.most_lost,
        missing_durable=tally.missing,
        empty_journals=tally.empty,
        audits_passed=tally.passed,
        events_audited=tally.audited,
        faults=tally.faults,
    )


def _wait_for_events(victim: Any, shared: Any, target: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while shared[ACCEPTED] < target:
        if victim.exitcode is not None:
            raise JournalError(f"the victim ended by itself with status {victim.exitcode}")
        if time.monotonic() > deadline:
            raise JournalError(f"the victim recorded {shared[ACCEPTED]} events in {START_SECONDS} seconds")
        time.sleep(LOOK_SECONDS)


def _wait_for_writer(pid: int) -> None:
    """Return once the process that stores is gone, or only waits for somebody to ask how it ended."""
    deadline = time.monotonic() + START_SECONDS
    while pid and time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return
        if state == "Z":
            return
        time.sleep(LOOK_SECONDS)
    if pid:
        raise JournalError(
            f"the process that stores has not ended {START_SECONDS} seconds after its scheduler"
        )


def _examine(url: str, shared: Any, run: str, tally: _Tally) -> None:
    """Open the journal as the next start would, and compare it with what the victim knew."""
    accepted, durable, journal_id = shared[ACCEPTED], shared[DURABLE], shared[JOURNAL]
    tally.accepted += accepted
    tally.durable += durable
    try:
        with Journal.open(url, create=False) as journal:
            tail = journal.reader(journal_id).tail(last_seq=accepted)
            # Killed before anything was stored: there is nothing to audit, only that nothing is there.
            empty = tail.durable_seq == 0 and not list(journal.verify(journal_id))
            verdict = None if empty else judge(journal, journal_id)
    except CacheError as error:
        tally.faults.append(f"{run}: the journal cannot be read: {error}")
        return
    tally.stored += tail.durable_seq
    tally.lost += tail.missing_events
    tally.most_lost = max(tally.most_lost, tail.missing_events)
    if tail.durable_seq < durable:
        tally.missing += durable - tail.durable_seq
        tally.faults.append(f"{run}: durable to seq {durable}, and the journal ends with {tail.durable_seq}")
    if verdict is None:
        tally.empty += 1
        return
    tally.audited += verdict.counts.events
    if verdict.verdict == "pass":
        tally.passed += 1
    else:
        first = verdict.findings[0] if verdict.findings else verdict.verdict
        tally.faults.append(f"{run}: the audit does not pass: {first}")


@contextmanager
def _store(setup: KillSetup) -> Iterator[str]:
    """The URL of the store to torture: the one that was named, or one that is gone afterwards."""
    if setup.url is not None:
        yield setup.url
    elif setup.engine == "sqlite":
        with tempfile.TemporaryDirectory(prefix="kvledger-torture-") as folder:
            url = f"sqlite:///{Path(folder) / 'torture.db'}"
            Journal.open(url).close()
            yield url
    else:
        store_url("postgresql:///torture")  # raises where psycopg is missing: before a server is started
        with start_server() as server:
            engine = sa.create_engine(server.url("postgres"), isolation_level="AUTOCOMMIT")
            with engine.connect() as connection:
                connection.execute(sa.text("CREATE DATABASE torture"))
            engine.dispose()
            migrate(store_url(server.url("torture")))
            yield server.url("torture")
