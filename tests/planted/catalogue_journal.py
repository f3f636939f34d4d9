"""Faults of journals and their readers: families 30 to 42 but 31."""

import time

from kvledger.core import transaction as transaction_module
from kvledger.core.check import check
from kvledger.journal import batches, digest, effects, linking, sqlite, stored_tokens
from kvledger.journal.audit.recount import Recount
from kvledger.journal.models import TransactionRow
from kvledger.journal.recorder import Recorder
from kvledger.journal.replay import Fold
from kvledger.journal.rows import RowWriter
from kvledger.journal.store import Journal
from kvledger.journal.structure import STRUCTURE
from kvledger.journal.submission_queue import SubmissionQueue
from tests.planted import probes, probes_store, probes_work
from tests.planted.planting import Planting
from tests.planted.variant import LIVES, Audit, Probe, Variant


def hash_alone(p: Planting) -> None:
    """Each link of a batch continues from the place where the batch begins."""
    p.edit(linking.link_batch, ("link = hash_pieces(link, cells,", "link = hash_pieces(place.hash, cells,"))


def hash_nanoseconds(p: Planting) -> None:
    """The hash covers a finer time than the row has."""
    wrong = "link = hash_pieces(link, (*cells[:5], time_us * 1000 + 1, *cells[6:]),"
    p.edit(linking.link_batch, ("link = hash_pieces(link, cells,", wrong))


def begin_by_itself(p: Planting) -> None:
    """The driver is left to its own transactions."""
    p.edit(
        sqlite._take_over_transactions,
        ("connection.isolation_level = None", "pass"),
        ("connection.exec_driver_sql(begin)", "pass"),
    )


def number_early(p: Planting) -> None:
    """A batch takes its numbers before it is stored."""
    right = "config = None if self._config_known"
    p.edit(RowWriter._insert, (right, "self._next_seq, self._next_number = seq, number\n    " + right))


def fold_anything(p: Planting) -> None:
    """A fold takes transactions in any order."""
    p.edit(
        Fold.apply,
        ("if transaction.number != self.transaction + 1:", "if False:"),
        ("if seqs != list(range(first, first + sound)):", "if False:"),
    )


def walk_always(p: Planting) -> None:
    """The full walk stands at the end of every transaction."""
    right = "if error is None:"
    p.edit(
        transaction_module.Scope.__exit__, (right, f"walk(self._ledger.state, [])\n    {right}"), walk=check
    )


def recount_always(p: Planting) -> None:
    """The walk that belongs to the end of a journal comes at the end of every transaction."""
    p.put(Recount, "ended_by", lambda recount: STRUCTURE.keys())
    p.put(Recount, "end_transaction", lambda recount, transaction: recount.end())


def ordered_by_time(p: Planting) -> None:
    heads = batches._HEADS.order_by(None).order_by(TransactionRow.time_us)
    p.put(batches, "_HEADS", heads)


VARIANTS = (
    Variant(
        "seqs move on before the commit",
        (32,),
        "Numbers are handed out when a batch is put together, and one that the store refuses leaves a gap.",
        number_early,
        Probe(probes.recorded_through_a_refusal, "chain [sequence]"),
    ),
    Variant(
        "an older transaction is folded again",
        (33,),
        "A consumer that has followed live removals takes the store's older transactions and revives nodes.",
        fold_anything,
        Probe(probes.replayed_after_it_was_live, "the digest is not that of the journal"),
    ),
    Variant(
        "every recording has the same epoch",
        (34,),
        "After a restart seqs begin at 1 again and nothing tells the two recordings apart.",
        lambda p: p.edit(Journal.begin, ("uuid.uuid4().hex", '"0" * 32')),
        Probe(probes.recorded_twice, "the schema's key: "),
    ),
    Variant(
        "the hash covers nanoseconds",
        (35,),
        "A time is hashed as it was measured and stored in microseconds.",
        hash_nanoseconds,
        Probe(probes.recorded, "chain [chain] in transactions at transaction 1, seq 1"),
    ),
    Variant(
        "time is the order",
        (35,),
        "A reader takes transactions in the order of their times, and the clock was set back.",
        ordered_by_time,
        Probe(probes.recorded_while_the_clock_goes_back, "not all are there"),
    ),
    Variant(
        "a batch is linked to the beginning",
        (36,),
        "An appender that does not know the end of the chain links what it writes to the genesis hash.",
        lambda p: p.edit(
            RowWriter._insert, ("self._next_number, self._hash)", "self._next_number, self._genesis)")
        ),
        Probe(probes.recorded_by_two, "the schema's key: "),
    ),
    Variant(
        "a hash leaves the one before it out",
        (36,),
        "Each transaction's hash covers its own rows alone.",
        hash_alone,
        Probe(probes.recorded, "chain [chain] in transactions"),
    ),
    Variant(
        "a writer begins late",
        (37,),
        "Transactions begin with BEGIN, and one that wants to write after it has read fails at once.",
        lambda p: p.edit(sqlite._writing_engine, ('begin="BEGIN IMMEDIATE"', 'begin="BEGIN"')),
        Probe(probes_store.begun_at_once, "StoreUnavailable: the second writer"),
    ),
    Variant(
        "the driver begins transactions by itself",
        (37,),
        "pysqlite decides when a transaction begins, and a released savepoint survives a rollback.",
        begin_by_itself,
        Probe(probes_store.savepoints_undone, "a second connection finds 1 rows"),
    ),
    Variant(
        "the log is never put into the file",
        (38,),
        "The write-ahead log grows with everything that is written.",
        lambda p: p.edit(
            sqlite._writing_engine, ('f"wal_autocheckpoint={WAL_PAGES}"', '"wal_autocheckpoint=0"')
        ),
        Probe(probes_store.the_log_stays_short, "`SqliteBackend.log` shows"),
    ),
    Variant(
        "a migration takes the children along",
        (39,),
        "Tables are dropped and rebuilt with foreign keys on.",
        lambda p: p.edit(sqlite.SqliteBackend.migrating_engine, ('foreign_keys="OFF"', 'foreign_keys="ON"')),
        Probe(probes_store.migrated, "FOREIGN KEY constraint failed"),
    ),
    Variant(
        "a full queue drops",
        (40,),
        "An append that finds the queue full returns and says nothing.",
        lambda p: p.edit(SubmissionQueue.put, ("self._wanted = self.accepted\n", "return\n")),
        Probe(probes.recorded_in_a_narrow_queue, "audit [well-formed]"),
    ),
    Variant(
        "a queue that overtakes",
        (40,),
        "The queue gives back what came last first.",
        lambda p: p.edit(SubmissionQueue.put, ("self._waiting.append(", "self._waiting.appendleft(")),
        Probe(probes.recorded, "audit, ReplayError: a journal begins with cache_opened"),
    ),
    Variant(
        "what is queued counts as durable",
        (40,),
        "The last durable seq is the last one that was accepted.",
        lambda p: p.edit(Recorder.durable_seq, ("self._queue.durable_seq", "self._queue.last_seq")),
        Probe(probes.what_is_durable, "`durable_seq` is"),
    ),
    Variant(
        "the reducer reads a clock",
        (41,),
        "A node's stamp is the time at which it was folded.",
        lambda p: p.edit(
            effects._node_touched,
            ("node.stamp = stamp", "node.stamp = -clock()"),
            clock=time.perf_counter_ns,
        ),
        Audit("checkpoint", "checkpoint", "as read"),
    ),
    Variant(
        "the digest follows the order of a dictionary",
        (41,),
        "Nodes stand in the digest in the order in which they came into the fold.",
        lambda p: p.edit(
            digest._nodes, ("nodes = sorted(first, key=first.__getitem__)", "nodes = list(first)")
        ),
        Audit("checkpoint", "checkpoint", "as read"),
    ),
    Variant(
        "the fold forgets an SWA lock in a split",
        (41, 21),
        "Replay gives the head of a split node no SWA lock.",
        lambda p: p.edit(effects._node_split, ("swa_lock=node.swa_lock", "swa_lock=0")),
        Audit("lock-order", "lock_released", "as read", ("node", "request")),
        LIVES[1:],
    ),
    Variant(
        "the fold keeps a tombstone's mapping",
        (41, 11),
        "Replay leaves the mapping of a node whose SWA went.",
        lambda p: p.edit(
            effects._swa_tombstoned, ("_put(state, state.mapping, event.full_pages, 0)", "pass")
        ),
        Audit("checkpoint", "checkpoint", "as read"),
    ),
    Variant(
        "the fold applies what was undone",
        (41,),
        "Replay folds events that a rollback took back.",
        lambda p: p.edit(Fold._steps, ("if mark:", "if False:")),
        Probe(probes.replayed, "the digest of the checkpoint"),
    ),
    Variant(
        "the namespace is missing from the hash",
        (30,),
        "What is stored of a node is hashed without its namespace, which the cache's digest covers.",
        lambda p: p.edit(
            stored_tokens._Ends.follow, ("self._form.seed(created.namespace)", "self._form.seed('')")
        ),
        Probe(probes.recorded_hashes, "audit [checkpoint] at checkpoint"),
    ),
    Variant(
        "a full walk at the end of every transaction",
        (42,),
        "The cache looks at everything whenever something ended.",
        walk_always,
        Probe(probes_work.work_of_a_small_call, "the count of calls: "),
    ),
    Variant(
        "a full walk at every transaction of an audit",
        (42,),
        "The audit counts the whole state again whenever a transaction ended.",
        recount_always,
        Probe(probes_work.work_of_an_audit, "the count of calls: "),
    ),
)
