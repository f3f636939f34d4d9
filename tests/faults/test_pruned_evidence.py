"""Fingerprints that are missing behind a pruned beginning: the journal's own row still promises them.

The forger here records all but the fingerprints anew, so that numbers, hashes, full states and row are those
of a journal that was made that way.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kvledger.core import CacheConfig, HybridCache, KVLayout
from kvledger.core.events import CacheOpened, Event, KvFingerprinted
from kvledger.core.sinks import MemorySink, TransactionRecord
from kvledger.journal import Journal
from kvledger.journal.audit import Verdict, audit
from kvledger.journal.database import writing_engine
from kvledger.journal.export import export_journal, prune_rows
from kvledger.tools.audit.evidence import Evidence, audit_stored
from tests.support.hand_written import broken

LAYOUT = KVLayout(full_layers=(0,), swa_layers=(1,), kv_heads=1, head_dim=2)
TOKENS = list(range(12))


def locks(*, fingerprints: bool) -> list[TransactionRecord]:
    """What a cache emits that is locked and unlocked twelve times."""
    sink = MemorySink()
    config = CacheConfig(
        page_size=4,
        sliding_window=8,
        full_tokens=64,
        swa_tokens=64,
        layout=LAYOUT,
        fingerprints=fingerprints,
    )
    cache = HybridCache(config, sink=sink)
    cache.insert(TOKENS, cache.alloc(len(TOKENS)))
    for _ in range(12):
        cache.release(cache.acquire(TOKENS))
    cache.checkpoint()
    return sink.transactions


def bare(records: Sequence[TransactionRecord]) -> Iterator[TransactionRecord]:
    """The same without fingerprints."""
    for record in records:
        events: list[Event] = [one for one in record.events if not isinstance(one, KvFingerprinted)]
        yield TransactionRecord(record.op, record.request_id, events, bytearray(len(events)))


def pruned(folder: Path, records: Sequence[TransactionRecord]) -> Path:
    """A database that holds the second half of a journal of `records`; the first is in a file beside it."""
    database = folder / "run.db"
    with Journal.open(database, create=True) as journal:
        with journal.record(name="run", checkpoint_every=20) as recorder:
            for record in records:
                recorder.append(record)
                recorder.flush()
        reader = journal.reader(recorder.journal_id)
        middle = reader.checkpoint_seqs()[len(reader.checkpoint_seqs()) // 2]
        export_journal(reader, folder / "exported")
        engine = writing_engine(journal.url)
        prune_rows(engine, reader, before_seq=middle + 1, exported=folder / "exported")
        engine.dispose()
    return database


def verdict_of(database: Path) -> Verdict:
    with Journal.open(database, create=False) as journal:
        return audit(journal.reader(), chain=journal.verify())


def test_evidence_removed_behind_a_pruned_beginning_is_told_although_every_hash_is_right(
    tmp_path: Path,
) -> None:
    database = pruned(tmp_path, list(bare(locks(fingerprints=True))))
    verdict = verdict_of(database)
    assert verdict.checkpoint_seq is not None
    assert broken(verdict) == {"locked-content"}
    assert all("evidence is missing" in found.sentence for found in verdict.findings)
    assert {report.status for report in verdict.invariants if report.id == "chain"} == {"verified"}


@pytest.mark.parametrize("fingerprints", [True, False])
def test_a_pruned_journal_whose_row_tells_the_truth_has_no_finding(
    fingerprints: bool, tmp_path: Path
) -> None:
    verdict = verdict_of(pruned(tmp_path, locks(fingerprints=fingerprints)))
    assert (verdict.verdict, verdict.findings) == ("unverified", ())
    assert (verdict.counts.pages_compared > 0) is fingerprints


def test_evidence_that_the_row_denies_is_not_well_formed_behind_a_pruned_beginning(tmp_path: Path) -> None:
    records = locks(fingerprints=True)
    opening = records[0].events[0]
    assert isinstance(opening, CacheOpened)
    records[0].events[0] = replace(opening, config={**opening.config, "fingerprints": False})
    assert broken(verdict_of(pruned(tmp_path, records))) == {"well-formed"}


def test_files_that_begin_later_are_held_to_what_the_row_in_them_promises(tmp_path: Path) -> None:
    database = pruned(tmp_path, list(bare(locks(fingerprints=True))))
    with Journal.open(database, create=False) as journal:
        export_journal(journal.reader(), tmp_path / "rest")
    assert broken(audit_stored(Evidence(str(tmp_path / "rest")))) == {"locked-content"}
    both = audit_stored(Evidence(str(database), exported=tmp_path / "exported"))
    assert broken(both) == {"locked-content"}
