"""Whatever of the tokens is kept, a journal proves the same; and what is not to be kept is in no byte."""

import ast
import dataclasses
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvledger import core
from kvledger.core import HybridCache
from kvledger.core.errors import InvalidArgument
from kvledger.core.events import KvFingerprinted, RolledBack
from kvledger.core.sinks import MemorySink
from kvledger.journal import Journal
from kvledger.journal.audit import audit
from kvledger.journal.export import EXPORT_FORMATS, ExportedJournal, export_journal
from kvledger.journal.replay import replay
from kvledger.journal.stored_tokens import OWN_OPS, WITHHELD
from kvledger.journal.tokens import HASH_BYTES, HashedTokens
from tests.support.payload_examples import FINGERPRINTED, lock_fingerprinted
from tests.support.private_tokens import NAMESPACES, leaks_in, live_privately, private_tokens

KEY = bytes(range(32))
POLICIES = [
    pytest.param("full", None, id="full"),
    pytest.param("hash", KEY, id="hash"),
    pytest.param("none", None, id="none"),
]


def recorded(path: Path, policy: Any, key: bytes | None) -> str:
    """Live a private life into `path`; the cache's digest at the end."""
    with (
        Journal.open(path) as journal,
        journal.record(tokens=policy, key=key, durability="background") as sink,
    ):
        return live_privately(sink).digest()


@pytest.mark.parametrize(("policy", "key"), POLICIES)
def test_replay_reproduces_every_digest_of_the_cache(tmp_path: Path, policy: str, key: bytes | None) -> None:
    digest = recorded(tmp_path / "run.db", policy, key)
    with Journal.open(tmp_path / "run.db") as journal:
        reader = journal.reader()
        assert reader.info.token_policy == policy
        assert replay(reader.transactions()).state.digest() == digest
        verdict = audit(reader.transactions(), chain=journal.verify())
    assert verdict.findings == ()
    assert verdict.counts.checkpoints_reproduced == verdict.counts.checkpoints == 5


def test_audits_count_the_same_under_every_policy(tmp_path: Path) -> None:
    verdicts = []
    for policy, key in (("full", None), ("hash", KEY), ("none", None)):
        recorded(tmp_path / f"{policy}.db", policy, key)
        with Journal.open(tmp_path / f"{policy}.db") as journal:
            verdicts.append(audit(journal.reader().transactions(), chain=journal.verify()))
    assert verdicts[0].counts.recoveries > 0
    assert verdicts[0].counts.rollbacks >= 3
    assert verdicts[0] == verdicts[1] == verdicts[2]


def stored_bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir()))


def test_tokens_and_namespaces_are_found_where_they_are_kept(tmp_path: Path) -> None:
    recorded(tmp_path / "run.db", "full", None)
    found = leaks_in(stored_bytes(tmp_path))
    assert {name for name in NAMESPACES if name in found} == set(NAMESPACES)
    assert len(found) > 150
    assert any(name.isdecimal() for name in found)


@pytest.mark.parametrize(("policy", "key"), POLICIES[1:])
def test_no_token_and_no_namespace_is_in_any_stored_byte(
    tmp_path: Path, policy: str, key: bytes | None
) -> None:
    journal = Journal.open(tmp_path / "run.db")
    recorder = journal.record(tokens=policy, key=key)  # type: ignore[arg-type]
    live_privately(recorder)
    recorder.flush()
    assert (tmp_path / "run.db-wal").stat().st_size > 0
    assert leaks_in(stored_bytes(tmp_path)) == set()
    recorder.close()
    journal.close()
    assert leaks_in(stored_bytes(tmp_path)) == set()
    assert key is None or key not in stored_bytes(tmp_path)


@pytest.mark.parametrize("form", EXPORT_FORMATS)
@pytest.mark.parametrize(("policy", "key"), POLICIES[1:])
def test_no_token_and_no_namespace_is_in_any_exported_byte(
    tmp_path: Path, policy: str, key: bytes | None, form: Any
) -> None:
    recorded(tmp_path / "run.db", policy, key)
    with Journal.open(tmp_path / "run.db") as journal:
        export_journal(journal.reader(), tmp_path / "out", form=form)
    exported = ExportedJournal.open(tmp_path / "out")
    assert leaks_in(stored_bytes(tmp_path / "out")) == set()
    verdict = audit(exported, chain=exported.verify())
    assert (verdict.verdict, verdict.counts.checkpoints_reproduced) == ("pass", 5)
    # What compression or an encoding would hide is in what is read back.
    told = []
    for transaction in exported.transactions():
        told.append(transaction.reason.encode())
        for stored in transaction.events:
            cells = [getattr(stored.event, field.name) for field in dataclasses.fields(stored.event)]
            told += [cell if isinstance(cell, bytes) else str(cell).encode() for cell in cells]
    assert leaks_in(b"".join(told)) == set()


def test_reasons_keep_the_name_of_an_exception_and_nothing_it_says(tmp_path: Path) -> None:
    recorded(tmp_path / "run.db", "hash", KEY)
    with Journal.open(tmp_path / "run.db") as journal:
        found = [t.reason for t in journal.reader().transactions() if t.rolled_back]
        reasons = [
            stored.event.reason
            for stored in journal.reader().events()
            if isinstance(stored.event, RolledBack)
        ]
    assert found == ["LeakyError", "InvalidArgument"]
    assert reasons == ["LeakyError", "InvalidArgument", "withheld"]


@pytest.mark.parametrize(("policy", "key"), POLICIES)
def test_a_name_that_a_caller_gives_a_transaction_may_quote_tokens_and_is_withheld(
    tmp_path: Path, policy: Any, key: bytes | None
) -> None:
    told = MemorySink()
    live_privately(told)
    token = int(private_tokens(0, 1)[0])
    with Journal.open(tmp_path / "run.db") as journal:
        with journal.record(tokens=policy, key=key) as recorder:
            cache = live_privately(recorder)
            with cache.transaction(f"op {token}"):
                cache.evict(full_tokens=4)
        found = [t.op for t in journal.reader().transactions()]
        assert audit(journal.reader(), chain=journal.verify()).verdict == "pass"
    if policy == "full":
        assert found[: len(told.transactions)] == [t.op for t in told.transactions]
        assert found[-1] == f"op {token}"
        return
    # All but the callers' own are what the cache calls them.
    assert found[: len(told.transactions)] == [
        WITHHELD if t.op == "leak" else t.op for t in told.transactions
    ]
    assert found[-1] == WITHHELD
    assert leaks_in(stored_bytes(tmp_path)) == set()


def test_every_name_that_the_cache_gives_a_transaction_is_kept() -> None:
    named: set[str] = set()
    for path in Path(core.__file__).parent.glob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "Scope":
                named |= {str(one.value) for one in call.args if isinstance(one, ast.Constant)}
    assert len(named) > 10
    assert named <= OWN_OPS


def test_equal_prefixes_have_equal_hashes_in_two_journals_of_one_key(tmp_path: Path) -> None:
    hashes = []
    for name, key in (("a", KEY), ("b", KEY), ("c", KEY[::-1])):
        recorded(tmp_path / f"{name}.db", "hash", key)
        with Journal.open(tmp_path / f"{name}.db") as journal:
            state = replay(journal.reader().transactions()).state
            hashes.append({node.tokens for node in state.nodes.values()} | set(state.roots))
    assert hashes[0] == hashes[1]
    assert not hashes[0] & hashes[2]


def test_a_journal_under_none_can_be_linked_to_no_other(tmp_path: Path) -> None:
    names = []
    for name in ("a", "b"):
        recorded(tmp_path / f"{name}.db", "none", None)
        with Journal.open(tmp_path / f"{name}.db") as journal:
            names.append(set(replay(journal.reader().transactions()).state.roots))
    assert names[0]
    assert not names[0] & names[1]


def test_a_hash_is_that_of_its_prefix_wherever_it_is_cut() -> None:
    form = HashedTokens(KEY)
    form.open_with(16)
    tokens = private_tokens(0, 24).tobytes()
    seed = form.seed("a")
    whole = form.node(seed, tokens)
    assert len(whole) == HASH_BYTES
    assert form.node(form.node(seed, tokens[:32]), tokens[32:]) == whole
    assert form.node(form.seed("b"), tokens) != whole
    assert form.node(seed, np.flip(private_tokens(0, 24)).tobytes()) != whole


def test_the_hash_is_the_one_that_docs_format_tells() -> None:
    form = HashedTokens(KEY)
    form.open_with(8)
    assert form.seed("a").hex() == "8da0c7545ce2e07798423934d3f527da"
    assert form.node(form.seed("a"), bytes(range(16))).hex() == "840093b831cfc59977258ff5a21d34cf"
    assert form.namespace("a") == "24aee0c0246f33df7bca2784f7081fe5"


def fingerprints_of(path: Path, policy: Any, key: bytes | None) -> list[KvFingerprinted]:
    """Lock and unlock one node of three equal pages, fingerprinted, and read back what is stored."""
    with Journal.open(path) as journal:
        with journal.record(tokens=policy, key=key) as recorder:
            lock_fingerprinted(HybridCache(FINGERPRINTED, sink=recorder))
        assert audit(journal.reader(), chain=journal.verify()).passed
        stored = [event.event for event in journal.reader().events()]
    return [event for event in stored if isinstance(event, KvFingerprinted)]


@pytest.mark.parametrize(("policy", "key"), POLICIES)
def test_checksums_of_kv_are_kept_as_they_are_only_where_tokens_are(
    tmp_path: Path, policy: Any, key: bytes | None
) -> None:
    stored = fingerprints_of(tmp_path / "run.db", policy, key)
    sums = [(event.full_pages.tolist(), event.full_sums.tolist(), event.swa_sums) for event in stored]
    by_page = {page: one for pages, numbers, _ in sums for page, one in zip(pages, numbers, strict=True)}
    if policy == "full":
        # Empty KV sums up to one, in every page and pool.
        assert set(by_page.values()) == {1}
        assert all(swa is not None and set(swa.tolist()) == {1} for _, _, swa in sums)
        return
    # Equal KV in different pages or pools is not known to be equal; in one page it is, at lock and unlock.
    assert len(set(by_page.values())) == len(by_page) == 3
    assert 1 not in by_page.values()
    half = len(stored) // 2
    for locked, unlocked in zip(stored[:half], stored[half:], strict=True):
        assert locked.swa_sums is not None
        assert unlocked.swa_sums is not None
        assert locked.full_sums.tolist() == unlocked.full_sums.tolist() != locked.swa_sums.tolist()
        assert locked.swa_sums.tolist() == unlocked.swa_sums.tolist()


def test_checksums_under_none_can_be_linked_to_no_other_journal(tmp_path: Path) -> None:
    one, other = (fingerprints_of(tmp_path / f"{name}.db", "none", None)[0] for name in "ab")
    assert one.full_sums.tolist() != other.full_sums.tolist()


def test_a_keyed_checksum_is_the_one_that_docs_format_tells() -> None:
    form, pages, sums = HashedTokens(KEY), np.array([1, 2]), np.array([7, 7], np.uint64)
    assert [f"{one:016x}" for one in form.sums(pages, sums, "full").tolist()] == [
        "383db9d8df445d41",
        "089356f69af1cc54",
    ]
    assert [f"{one:016x}" for one in form.sums(pages, sums, "swa").tolist()] == [
        "18c371b28710de64",
        "098a72ab50ac1771",
    ]
    message = (1).to_bytes(8, "little") + (7).to_bytes(8, "little")
    alone = blake2b(message, digest_size=8, key=KEY, person=b"kvledger full kv").digest()
    assert int.from_bytes(alone, "little") == form.sums(pages, sums, "full")[0]


@pytest.mark.parametrize(
    ("policy", "key"),
    [
        ("hash", None),
        ("hash", b"short"),
        ("hash", bytes(65)),
        ("hash", "0" * 32),
        ("full", KEY),
        ("some", None),
    ],
)
def test_a_policy_without_the_key_it_needs_is_refused(tmp_path: Path, policy: Any, key: Any) -> None:
    with Journal.open(tmp_path / "run.db") as journal:
        with pytest.raises(InvalidArgument, match=r"key|tokens"):
            journal.record(tokens=policy, key=key)
        assert journal.list() == ()


def test_what_the_sink_is_given_stays_as_it_is(tmp_path: Path) -> None:
    class Both(MemorySink):
        def append(self, transaction: Any) -> None:
            recorder.append(transaction)
            super().append(transaction)

    kept = MemorySink()
    live_privately(kept)
    with Journal.open(tmp_path / "run.db") as journal:
        recorder = journal.record(tokens="hash", key=KEY)
        both = Both()
        live_privately(both)
        recorder.close()
    for mine, plain in zip(both.transactions, kept.transactions, strict=True):
        assert mine.reason == plain.reason
        assert [repr(event) for event in mine.events] == [repr(event) for event in plain.events]
