"""Short runs of the journal or of a workload, in a folder: what they see in the end, None where all is well.

Each returns a line that begins with the name of the check that fired.
"""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from kvledger.core import CacheConfig, HybridCache
from kvledger.core.errors import JournalError, StoreUnavailable
from kvledger.core.events import Checkpoint
from kvledger.core.ids import Seq
from kvledger.core.sinks import TransactionRecord
from kvledger.journal import Journal
from kvledger.journal.audit import audit
from kvledger.journal.linking import LinkedRows
from kvledger.journal.records import number_transactions
from kvledger.journal.replay import Fold, ReplayError
from kvledger.journal.rows import RowWriter, Submission
from tests.planted.evidence import Course, right_run
from tests.planted.life import life
from tests.support.recorded_run import small_run

KEY = b"sixteen bytes or more"

LIFE = Course(life)


def judged(journal: Journal, number: int | None = None) -> str | None:
    """The first break of the chain, else the audit's first finding."""
    breaks = list(journal.verify(number))
    if breaks:
        broken = breaks[0]
        place = f"transaction {broken.number}, seq {broken.seq}"
        return f"chain [{broken.invariant}] in {broken.table} at {place}"
    try:
        findings = audit(journal.reader(number)).findings
    except JournalError as error:
        return f"audit, {type(error).__name__}: {error}"
    if findings:
        kinds = {e.seq: e.event.kind for t in journal.reader(number).transactions() for e in t.events}
        first = findings[0]
        return f"audit [{first.invariant}] at {kinds.get(Seq(first.seq or 0))}: {first.sentence}"
    return None


def _records() -> Sequence[TransactionRecord]:
    return small_run(12)


def recorded(folder: Path) -> str | None:
    """A small run is recorded, with checkpoints of the recorder's own, and read back."""
    with Journal.open(folder / "run.db") as journal:
        with journal.record(durability="background", checkpoint_every=50) as recorder:
            for record in _records():
                recorder.append(record)
        return judged(journal)


def recorded_with_digests(folder: Path, *, tokens: str = "full") -> str | None:
    """A cache works on a recorder and gives its digest after every call; the journal is read back."""
    with Journal.open(folder / "run.db") as journal:
        key = KEY if tokens == "hash" else None
        with journal.record(durability="background", tokens=tokens, key=key) as recorder:  # type: ignore[arg-type]
            config = CacheConfig(page_size=2, sliding_window=4, full_tokens=64, swa_tokens=64)
            cache = HybridCache(config, sink=recorder)
            for number in range(6):
                request = cache.open_request(f"r{number}", [*range(10), number, 7], "ab"[number % 2])
                request.extend(12 - request.prefix_len)
                request.computed()
                request.commit()
                cache.checkpoint()
                request.finish()
                cache.checkpoint()
        return judged(journal)


def recorded_hashes(folder: Path) -> str | None:
    """The same with the tokens hashed."""
    return recorded_with_digests(folder, tokens="hash")


def recorded_in_a_narrow_queue(folder: Path) -> str | None:
    """The queue has room for next to nothing, and everybody has to wait."""
    with Journal.open(folder / "run.db") as journal:
        with journal.record(durability="background", queue_limit=8) as recorder:
            for record in _records():
                recorder.append(record)
            taken = recorder.last_seq
        told = judged(journal)
        if told is None and taken != sum(len(record.events) for record in _records()):
            return f"`last_seq` is {taken}"
        return told


def recorded_through_a_refusal(folder: Path) -> str | None:
    """The store refuses a batch once; the writer looks where it stands and stores it again."""
    with Journal.open(folder / "run.db") as journal, journal.record(durability="background") as recorder:
        writer = recorder._writer
        assert isinstance(writer, RowWriter)
        carry_out, times = writer._commit, 0

        def refuse_once(linked: LinkedRows, config: str | None) -> None:
            nonlocal times
            times += 1
            if times == 1:
                raise StoreUnavailable("the store is away for a moment")
            carry_out(linked, config)

        writer._commit = refuse_once  # type: ignore[method-assign]
        records = [Submission(record, 0) for record in _records()]
        try:
            writer.store(records[:5])
        except StoreUnavailable:
            writer.resync()
            writer.store(records[:5])
        writer.store(records[5:])
        return judged(journal)


def recorded_by_two(folder: Path) -> str | None:
    """Two writers append to one journal; the second must be refused before it forks the chain."""
    with Journal.open(folder / "run.db") as journal, journal.record(durability="background") as recorder:
        first = recorder._writer
        assert isinstance(first, RowWriter)
        records = [Submission(record, 0) for record in _records()]
        try:
            first.store(records[:3])
            first.store(records[3:])
        except JournalError as error:
            return f"the schema's key: {error}"
        return judged(journal)


def recorded_while_the_clock_goes_back(folder: Path) -> str | None:
    """Every transaction is handed over at an earlier time than the one before it."""
    with Journal.open(folder / "run.db") as journal, journal.record(durability="background") as recorder:
        writer = recorder._writer
        for number, record in enumerate(_records()):
            writer.store([Submission(record, 1_000_000_000 - number)])
        return judged(journal)


def recorded_twice(folder: Path) -> str | None:
    """Two recordings after one another, as before and after a restart, into one store."""
    try:
        with Journal.open(folder / "run.db") as journal:
            for _ in range(2):
                with journal.record(durability="background") as recorder:
                    for record in _records():
                        recorder.append(record)
            return judged(journal, 1) or judged(journal, 2)
    except JournalError as error:
        return f"the schema's key: {error}"


def what_is_durable(folder: Path) -> str | None:
    """What the recorder calls durable stands on the disk, as a second connection can tell."""
    path = folder / "run.db"
    with Journal.open(path) as journal, journal.record(durability="background") as recorder:
        with closing(sqlite3.connect(path, timeout=0)) as other:
            other.execute("BEGIN IMMEDIATE")  # the writer has to wait
            for record in _records():
                recorder.append(record)
            told = recorder.durable_seq
            (there,) = other.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()
            other.rollback()
        return None if told <= there else f"`durable_seq` is {told}, a second connection finds {there}"


def replayed(folder: Path) -> str | None:
    """A fold of a cache's life has the digest that each checkpoint names."""
    fold = Fold()
    for transaction in right_run(LIFE).transactions:
        fold.apply(transaction)
        for stored in transaction.events:
            if isinstance(stored.event, Checkpoint) and fold.state.digest() != stored.event.digest:
                return f"the digest of the checkpoint at seq {stored.seq}"
    return None


def replayed_after_it_was_live(folder: Path) -> str | None:
    """A consumer that followed a journal live to its end is then given the store's older transactions."""
    transactions = number_transactions(small_run(60))
    fold = Fold()
    for transaction in transactions:
        fold.apply(transaction)
    right, alive = fold.state.digest(), set(fold.state.nodes)
    for older in transactions[1:]:
        try:
            fold.apply(older)
        except ReplayError as error:
            if "one is missing" in error.problem:
                return None
            return f"replay: {error.problem}"
        revived = sorted(set(fold.state.nodes) - alive)
        if revived or fold.state.digest() != right:
            return f"the digest is not that of the journal: nodes {revived} are there again"
    return None
