"""Runs audits one after the other in a thread, and keeps what came of the last of them.

The thread is a daemon: a scheduler that ends without closing its Inspector must not wait for an audit.

An audit is of the journal as it was when it was asked for: what is recorded later is not in it. Its verdict
is the document that the command line prints, with namespaces hidden where the service hides them.
"""

import logging
import secrets
import threading
import time
from collections import OrderedDict
from queue import SimpleQueue
from typing import Literal

from kvledger.api.audits.anchors import anchor_in
from kvledger.api.audits.private import hidden_verdict
from kvledger.api.audits.source import BoundedSource, Cancelled
from kvledger.api.library import Library, OpenedJournal
from kvledger.api.problems import pruned, too_many, unknown
from kvledger.api.schemas.audits import AuditOut, AuditRequest
from kvledger.core.errors import CacheError
from kvledger.journal.audit import Verdict, audit
from kvledger.journal.chain_check import ChainCheck, KeptAnchor
from kvledger.journal.verify import ChainTally

log = logging.getLogger("kvledger.api")

RETRY_SECONDS = 10
"""When to ask again where too many audits wait: a short one is over by then."""

State = Literal["waiting", "running", "done", "failed", "cancelled"]


class _Audit:
    """One audit, and how far it is. Written by the thread that runs it, read by any."""

    def __init__(
        self,
        serial: int,
        *,
        journal: int,
        source: BoundedSource,
        begins: int,
        upto_seq: int,
        chain: bool,
        anchor: KeptAnchor | None,
    ) -> None:
        self.serial = serial
        self.id = secrets.token_hex(8)
        self.journal = journal
        self.source = source
        self.upto_seq = upto_seq
        self.chain = chain
        self.anchor = anchor
        self.begins = begins
        self.started_us = time.time_ns() // 1000
        self.ended_us: int | None = None
        self.state: State = "waiting"
        self.verdict: Verdict | None = None
        self.problem: str | None = None

    def told(self) -> AuditOut:
        """The audit as it stands."""
        return AuditOut(
            id=self.id,
            journal=self.journal,
            state=self.state,
            upto_seq=self.upto_seq,
            chain=self.chain,
            signature=None if self.anchor is None else self.anchor.signature,
            done_events=max(0, self.source.reached - self.begins + 1),
            total_events=max(0, self.upto_seq - self.begins + 1),
            started_us=self.started_us,
            ended_us=self.ended_us,
            verdict=self.verdict,
            problem=self.problem,
        )


class Audits:
    """The audits of one service. Every method is safe from any thread."""

    def __init__(self, library: Library, *, waiting: int, kept: int) -> None:
        self._library = library
        self._waiting_limit = waiting
        self._kept_limit = kept
        self._lock = threading.Lock()
        self._audits: OrderedDict[str, _Audit] = OrderedDict()
        self._serial = 0
        self._queue: SimpleQueue[_Audit | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self, opened: OpenedJournal, wanted: AuditRequest) -> AuditOut:
        """Let an audit of `opened` begin when those before it are over.

        Raises a refusal: 404 for a seq that is not there yet, 410 for one that was pruned, 429 where too many
        wait; and errors of `anchor_in`.
        """
        anchor = None if wanted.anchor is None else anchor_in(wanted.anchor)
        reader = self._library.store.reader(opened.id)
        head, begins = reader.head().seq, reader.beginning().seq
        upto = head if wanted.upto_seq is None else wanted.upto_seq
        if upto > head:
            raise unknown("seq", detail=f"seq {upto} is not there yet, the journal ends at {head}")
        if upto < begins - 1:
            raise pruned(f"seq {upto} was pruned: what is stored begins at seq {begins}")
        with self._lock:
            unfinished = sum(one.ended_us is None for one in self._audits.values())
            if unfinished > self._waiting_limit:
                raise too_many(
                    f"an audit runs and {unfinished - 1} wait, which is the limit",
                    retry_after_s=RETRY_SECONDS,
                )
            self._serial += 1
            begun = _Audit(
                self._serial,
                journal=opened.id,
                source=BoundedSource(reader, upto_seq=upto),
                begins=begins,
                upto_seq=upto,
                chain=wanted.chain,
                anchor=anchor,
            )
            self._audits[begun.id] = begun
            self._forget()
            # Told before it may run: an answer to "begin this" says that it waits.
            told = begun.told()
            self._queue.put(begun)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="kvledger-audit", daemon=True)
                self._thread.start()
        return told

    @property
    def begun(self) -> bool:
        """Whether any was ever begun here."""
        return self._serial > 0

    def of(self, journal: int) -> list[tuple[int, AuditOut]]:
        """The audits of one journal that are kept, newest first, each with a number that falls."""
        with self._lock:
            return [
                (one.serial, one.told()) for one in reversed(self._audits.values()) if one.journal == journal
            ]

    def get(self, journal: int, audit_id: str) -> AuditOut:
        """One audit. Raises a 404 refusal where it is not known, or not any more."""
        with self._lock:
            return self._found(journal, audit_id).told()

    def cancel(self, journal: int, audit_id: str) -> AuditOut:
        """Let an audit end at its next transaction; one that is over stays as it is. Raises as `get`."""
        with self._lock:
            found = self._found(journal, audit_id)
            found.source.stop.set()
            if found.state == "waiting":
                self._end(found, "cancelled")
            return found.told()

    def close(self) -> None:
        """Cancel all that run or wait, and wait until they have ended."""
        with self._lock:
            for one in self._audits.values():
                one.source.stop.set()
            thread = self._thread
        self._queue.put(None)
        if thread is not None:
            thread.join()

    def _found(self, journal: int, audit_id: str) -> _Audit:
        found = self._audits.get(audit_id)
        if found is None or found.journal != journal:
            raise unknown("audit", detail=f"no audit {audit_id[:40]!r} of journal {journal} is kept here")
        return found

    def _forget(self) -> None:
        """Drop the oldest audits that are over, beyond those that are kept."""
        ended = [one.id for one in self._audits.values() if one.ended_us is not None]
        for audit_id in ended[: max(0, len(self._audits) - self._kept_limit)]:
            del self._audits[audit_id]

    def _work(self) -> None:
        while (begun := self._queue.get()) is not None:
            self._run(begun)

    def _run(self, begun: _Audit) -> None:
        with self._lock:
            if begun.state != "waiting":
                return
            begun.state = "running"
        state, verdict, problem = self._judge(begun)
        with self._lock:
            begun.verdict, begun.problem = verdict, problem
            self._end(begun, state)

    def _judge(self, begun: _Audit) -> tuple[State, Verdict | None, str | None]:
        """How the audit ends: its state, and its verdict or why there is none."""
        try:
            verdict = hidden_verdict(self._audited(begun), self._library.hide)
        except Cancelled:
            return "cancelled", None, None
        except CacheError as error:
            return "failed", None, self._library.hide.message(str(error))
        except Exception:
            log.exception("the audit of journal %s failed", begun.journal)
            return "failed", None, "the audit met a fault of its own; the log of the service says which"
        return "done", verdict, None

    def _audited(self, begun: _Audit) -> Verdict:
        """The verdict, as the command line has it: with what the chain says of the journal's end."""
        source, anchor = begun.source, begun.anchor
        if not begun.chain:
            return audit(source)
        tally = ChainTally()
        head = None if anchor is None else anchor.head
        breaks = self._library.store.verify(begun.journal, anchor=head, tally=tally)
        check = ChainCheck(breaks, tally, anchor=anchor)
        verdict = audit(source, chain=source.until_stopped(check))
        return verdict.model_copy(update={"tail": check.tail, "notes": (*verdict.notes, *check.notes())})

    @staticmethod
    def _end(ended: _Audit, state: State) -> None:
        ended.ended_us = time.time_ns() // 1000
        ended.state = state
