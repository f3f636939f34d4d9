"""One journal in every place where it can be kept, for suites that must find the same everywhere."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from kvledger.core import HybridCache
from kvledger.journal import Journal, LookUpSource
from kvledger.journal.database import writing_engine
from kvledger.journal.export import ExportFormat, export_journal, prune_rows
from kvledger.tools.reading.sources import open_source
from tests.support.private_tokens import NAMESPACES, live_privately, private_tokens

PLACES = ("database", "parquet", "jsonl", "several files", "pruned database with files")
"""The first is where the journal was recorded."""

CHECKPOINT_EVERY = 50


def keep_everywhere(folder: Path) -> None:
    """Record a life that has some of everything, and put it in every place below `folder`."""
    with Journal.open(folder / "run.db") as journal:
        with journal.record(durability="commit", checkpoint_every=CHECKPOINT_EVERY) as recorder:
            suffer(live_privately(recorder))
        reader = journal.reader()
        end = reader.head().seq
        export_journal(reader, folder / "parquet")
        export_journal(reader, folder / "jsonl", form="jsonl")
        for part in (1, 2, 3):
            form: ExportFormat = "jsonl" if part == 2 else "parquet"
            export_journal(reader, folder / "several", form=form, upto_seq=end * part // 3)
        export_journal(reader, folder / "older", upto_seq=end * 2 // 3)
    shutil.copy(folder / "run.db", folder / "pruned.db")
    with Journal.open(folder / "pruned.db") as journal:
        engine = writing_engine(journal.url)
        try:
            prune_rows(engine, journal.reader(), before_seq=end // 2, exported=folder / "older")
        finally:
            engine.dispose()


def suffer(cache: HybridCache) -> None:
    """Resets that cut locks, calls that come after them, and transactions that are undone, some in part."""
    for round_ in range(2):
        lease = cache.acquire(private_tokens(0, 40), namespace=NAMESPACES[0])
        request = cache.open_request(f"cut{round_}", private_tokens(0, 41), namespace=NAMESPACES[0])
        with suppress(ZeroDivisionError), cache.transaction("broken", request_id="cut"):
            cache.insert(private_tokens(0, 8), cache.alloc(8))
            raise ZeroDivisionError("as it happens")
        with cache.transaction("in part") as transaction:
            cache.free(cache.alloc(4))
            savepoint = transaction.savepoint()
            cache.insert(private_tokens(0, 16), cache.alloc(16))
            transaction.rollback(to=savepoint, reason="not this")
            cache.free(cache.alloc(8))
        cache.reset()
        cache.release(lease)
        request.abort()
        cache.insert(private_tokens(0, 40), cache.alloc(40), namespace=NAMESPACES[0])


def arguments_for(folder: Path, place: str) -> list[str]:
    """What a command is told to find the journal in this place."""
    return {
        "database": [str(folder / "run.db")],
        "parquet": [str(folder / "parquet")],
        "jsonl": [str(folder / "jsonl")],
        "several files": [str(folder / "several")],
        "pruned database with files": [str(folder / "pruned.db"), "--exported", str(folder / "older")],
        "pruned database": [str(folder / "pruned.db")],
    }[place]


@contextmanager
def opened(folder: Path, place: str) -> Iterator[LookUpSource]:
    """The journal in this place, opened as commands open it."""
    where, *exported = arguments_for(folder, place)
    with open_source(where, exported=exported[-1] if exported else None) as source:
        yield source.source
