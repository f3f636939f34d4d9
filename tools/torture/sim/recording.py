"""One run of a cache into one journal: recorded, stepped, killed or closed, then held against its journal.

What is stored is read back by replay and audit, which share nothing with the cache: the state must be the one
that the cache had after the last transaction on disk, the chain must link, and the verdict must be pass.
"""

import hashlib
import re
import sqlite3
from collections import Counter
from contextlib import closing, suppress

from kvledger.core.errors import JournalError
from kvledger.journal import Journal, JournalReader, Recorder
from kvledger.journal.audit import audit
from kvledger.journal.replay import replay
from kvledger.tools.torture.sim.faults import Tap, Trap
from kvledger.tools.torture.sim.finding import Finding, equal, require
from kvledger.tools.torture.sim.setting import Setting
from kvledger.tools.torture.sim.store import Store
from kvledger.tools.torture.sim.workers import InTurn

STORED_CELLS = (
    "SELECT journal_id, seq, txn, kind, version, undone, payload, blob FROM events ORDER BY journal_id, seq",
    "SELECT journal_id, number, op, request_id, status, reason, first_seq, event_count FROM transactions "
    "ORDER BY journal_id, number",
)
"""All that is stored but times, and what is hashed over them."""

SALTED = re.compile(r'(?<="namespace":")[0-9a-f]{32}|(?<="digest":")[0-9a-f]{64}')
"""What the token policy "none" makes of a namespace, with a secret of its own each time, and what follows."""


class Recording:
    """A recorder whose writer is stepped, and what the cache said its state was."""

    def __init__(
        self, journal: Journal, store: Store, setting: Setting, trap: Trap, tally: Counter[str]
    ) -> None:
        self._journal = journal
        self._store = store
        self._setting = setting
        self._tally = tally
        self._workers = InTurn(setting.batch_events)
        self._durable = 0
        journal.workers = self._workers
        self.recorder: Recorder = journal.record(name="torture", **setting.recording)
        self.tap = Tap(self.recorder, trap)
        self._digests: dict[int, str] = {}

    @property
    def in_doubt(self) -> bool:
        """Whether the next transaction may be refused because of the store."""
        return self._store.failing.on or self.failed

    @property
    def failed(self) -> bool:
        """Whether the recorder stores nothing more."""
        waiting = self._workers.waiting
        return waiting is not None and waiting.failure is not None

    def remembered(self) -> str | None:
        """The cache's digest after all that was handed over, if it is known already."""
        return self._digests.get(self.tap.transactions)

    def remember(self, digest: str) -> None:
        """The cache's digest after all transactions that were handed over so far."""
        self._digests[self.tap.transactions] = digest

    def step(self) -> bool:
        """Let the writer store a batch."""
        worked = self._workers.step()
        self._check_durable()
        return worked

    def flush(self) -> None:
        """What a scheduler does once a step; JournalError where the recorder has failed."""
        self.recorder.flush()
        recorder = self.recorder
        if not recorder.degraded:
            equal(recorder.durable_seq, recorder.last_seq, "durable", "what is durable after a flush")
        self._check_durable()

    def kill(self) -> None:
        """The process dies: what the writer has not stored is gone."""
        waiting = self._workers.waiting
        if waiting is not None:
            waiting.fail(JournalError("the process was killed"), durable_seq=waiting.durable_seq)
        with suppress(JournalError):
            self.recorder.close()
        self._store.failing.heal()
        self._tally["events lost in crashes"] += self._hold_against_journal(whole=False)

    def abandon(self) -> None:
        """Store nothing more, and hold nothing against anything."""
        waiting = self._workers.waiting
        if waiting is not None:
            waiting.fail(JournalError("the run was given up"), durable_seq=waiting.durable_seq)
        with suppress(JournalError):
            self.recorder.close()

    def close(self, digest: str) -> None:
        """The process ends well: everything is stored. `digest` is the cache's last one."""
        self._store.failing.heal()
        self._digests[self.tap.transactions] = digest
        self.recorder.close()
        self._hold_against_journal(whole=True)

    def _check_durable(self) -> None:
        durable = int(self.recorder.durable_seq)
        require(
            durable >= self._durable, "durable", f"seq {self._durable} was durable, and now only {durable}"
        )
        self._durable = durable

    def _hold_against_journal(self, *, whole: bool) -> int:
        """Replay and audit what is stored. Returns how many accepted events are not."""
        self._check_durable()
        recorder = self.recorder
        reader = self._journal.reader(recorder.journal_id)
        head = reader.head()
        lost = self.tap.events - head.seq
        require(
            head.seq >= recorder.durable_seq,
            "durable",
            f"{recorder.durable_seq} was durable, {head.seq} is the end",
        )
        self._tally["stalls of a full queue"] += recorder.stalls
        self._tally["events dropped in outages"] += recorder.dropped_events
        gaps = recorder.dropped_events > 0
        if whole or (self._setting.durability == "commit" and not gaps and not recorder.degraded):
            require(lost <= 0, "durable", f"{lost} events were accepted and are not stored")
        if head.seq:
            self._judge(reader, recorder.journal_id, gaps=gaps)
            self._replay(reader, head.number, gaps=gaps, whole=whole)
        return max(0, lost)

    def _judge(self, reader: JournalReader, journal: int, *, gaps: bool) -> None:
        verdict = audit(reader, chain=self._journal.verify(journal))
        self._tally["journals audited"] += 1
        self._tally["events audited"] += verdict.counts.events
        if verdict.verdict == "pass" or (gaps and verdict.verdict == "unverified"):
            return
        require(bool(verdict.findings), "audit", f"journal {journal} is {verdict.verdict} without a finding")
        first = min(verdict.findings, key=lambda found: found.seq or 0)
        raise Finding(f"audit {first.invariant}", f"journal {journal}: {first.sentence}")

    def _replay(self, reader: JournalReader, number: int, *, gaps: bool, whole: bool) -> None:
        if gaps and not whole:
            return  # Which of the cache's states the journal ends with cannot be told by numbers.
        replayed = replay(reader)
        self._tally["replays"] += 1
        wanted = self._digests.get(self.tap.transactions if gaps else number)
        if wanted is None:
            return
        self._tally["digests compared"] += 1
        equal(replayed.state.digest(), wanted, "digest", f"the digest replayed up to transaction {number}")


def stored_digest(store: Store, setting: Setting) -> str:
    """SHA-256 of all that is stored in a store, but for times and secrets: the same for the same seed."""
    salted = setting.tokens == "none"
    total = hashlib.sha256()
    names: dict[str, str] = {}

    def named(found: re.Match[str]) -> str:
        return names.setdefault(found[0], str(len(names)))

    with closing(sqlite3.connect(store.path)) as connection:
        for query in STORED_CELLS:
            for row in connection.execute(query):
                total.update((SALTED.sub(named, repr(row)) if salted else repr(row)).encode())
    return total.hexdigest()
