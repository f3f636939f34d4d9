"""A file that is cut short under its recorder: what was durable in it is lost, and that is told at once."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from kvledger.core import CacheConfig, HybridCache
from kvledger.core.errors import JournalError
from kvledger.journal import Journal, Recorder, outage
from kvledger.journal.audit import audit
from kvledger.journal.sqlite import PAGE_BYTES, WAL_LIMIT_BYTES

CONFIG = CacheConfig(page_size=4, sliding_window=8, full_tokens=256, swa_tokens=256)

Damage = Callable[[Path], None]


@pytest.fixture(autouse=True)
def _quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outage, "FIRST_RETRY_SECONDS", 0.001)


def use(cache: HybridCache, times: int) -> None:
    """Allocate and free a page, in transactions of two events with a label of some length."""
    for _ in range(times):
        with cache.transaction("load " * 100):
            cache.free(cache.alloc(4))


def put_log_into_file(path: Path) -> None:
    """Without a log of its own the file is all that there is."""
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[0] == 0


def nothing(path: Path) -> None:
    os.truncate(path, 0)


def one_page(path: Path) -> None:
    os.truncate(path, PAGE_BYTES)


def half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2 // PAGE_BYTES * PAGE_BYTES)


def a_byte_less(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def log_of_nothing(path: Path) -> None:
    os.truncate(f"{path}-wal", 0)


def log_of_one_page(path: Path) -> None:
    os.truncate(f"{path}-wal", PAGE_BYTES)


DAMAGES = [nothing, one_page, half, a_byte_less, log_of_nothing, log_of_one_page]


def recorded(journal: Journal, path: Path, damage: Damage, **how: Any) -> tuple[Recorder, HybridCache]:
    """A recorder with a hundred transactions on disk: in the file, or, where that is cut, in the log."""
    recorder = journal.record(**how)
    cache = HybridCache(CONFIG, sink=recorder)
    use(cache, times=100)
    recorder.flush()
    if "log" not in damage.__name__:
        put_log_into_file(path)
        use(cache, times=1)
        recorder.flush()
    return recorder, cache


@pytest.mark.parametrize("durability", ["commit", "step", "background"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_nothing_more_is_durable_in_a_store_that_was_cut_short(
    tmp_path: Path, damage: Damage, durability: str
) -> None:
    path = tmp_path / "run.db"
    with Journal.open(path) as journal:
        recorder, cache = recorded(journal, path, damage, durability=durability)
        seq = recorder.durable_seq
        damage(path)
        with suppress(JournalError):  # at once or at the flush, as the durability says
            use(cache, times=1)
        for tell in (recorder.flush, recorder.close):
            with pytest.raises(JournalError, match="cut short"):
                tell()
        assert recorder.durable_seq == seq


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_degraded_recorder_does_not_go_on_in_a_store_that_was_cut_short(
    tmp_path: Path, damage: Damage
) -> None:
    path = tmp_path / "run.db"
    with Journal.open(path) as journal:
        recorder, cache = recorded(journal, path, damage, on_failure="degrade")
        seq = recorder.durable_seq
        damage(path)
        use(cache, times=1)
        recorder._thread.join()
        for tell in (lambda: use(cache, times=1), recorder.close):
            with pytest.raises(JournalError, match="cut short"):
                tell()
        assert recorder.durable_seq == seq


def filled(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE ballast (it BLOB)")
        other.execute("INSERT INTO ballast VALUES (zeroblob(1000000))")
        other.commit()
        put_log_into_file(path)


def compacted(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("DROP TABLE ballast")
        other.commit()
        other.execute("VACUUM")
        assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0


def test_a_file_that_an_operator_compacts_is_recorded_into_on(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    with Journal.open(path) as journal, journal.record(durability="commit") as recorder:
        cache = HybridCache(CONFIG, sink=recorder)
        filled(path)
        use(cache, times=10)
        large = path.stat().st_size
        compacted(path)
        assert path.stat().st_size < large
        use(cache, times=100)
        assert audit(journal.reader(), chain=journal.verify()).verdict == "pass"
        assert journal.reader().head().seq == recorder.last_seq


def test_a_log_that_is_cut_to_its_limit_is_not_read_for_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.db"
    with Journal.open(path) as journal, journal.record(durability="commit") as recorder:
        cache = HybridCache(CONFIG, sink=recorder)
        with closing(sqlite3.connect(path)) as other:
            other.execute("CREATE TABLE ballast (it BLOB)")
            other.execute("INSERT INTO ballast VALUES (zeroblob(?))", (2 * WAL_LIMIT_BYTES,))
            other.commit()
        log = Path(f"{path}-wal")
        assert log.stat().st_size > WAL_LIMIT_BYTES
        monkeypatch.setattr("kvledger.journal.same_store.SameStore.is_whole", lambda store: False)
        use(cache, times=3)
        assert log.stat().st_size == WAL_LIMIT_BYTES
        assert list(journal.verify()) == []
