"""The tables of a store: journals, their transactions, the events in them, and checkpoints.

Rules that must hold are keys here, not conditions in code: a seq, a transaction number and a previous hash
occur once in a journal, so two writers cannot fork a chain. Times are integer microseconds since 1970 and
never order anything. Text is Text and integers are 64-bit on every database; on SQLite the tables are STRICT,
so that a cell cannot quietly hold a value of another type.

The events of a transaction are one dense range of seqs, which its row names: they are found by the primary
key, and `events.txn` needs no index for that. A server has one all the same: its foreign key looks there for
each transaction that is pruned; on SQLite pruning asks nothing of it. Events and transactions are clustered
by their keys (WITHOUT ROWID): they are written and read in that order, and one look-up finds a row.
"""

from collections.abc import Callable
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

SCHEMA_TABLE = "kvledger_schema"
"""Where Alembic notes the revision; a name of our own, so that a store may share a database."""

SCHEMA_REVISION = "0003"
"""The newest revision in alembic/versions: what the models below describe."""

FORMAT_VERSION = 2
"""Version of the stored form of rows and of the hash over them, noted in each journal: of those that are
recorded from now on."""

READABLE_FORMATS = (1, 2)
"""Versions of the journals that are read. In one of format 1 the columns that came with format 2 are NULL."""

COMMITTED, ROLLED_BACK = "committed", "rolled_back"
"""The status of a transaction: something of it was kept, or nothing."""

ONLY_ON = "only_on"
"""In the `info` of an index: the one kind of database that has it."""

Int64 = BigInteger().with_variant(Integer(), "sqlite")


class Base(DeclarativeBase):
    """Root of the models; constraint names are fixed so that later migrations can speak of them."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class JournalRow(Base):
    """One recording: a cache from its opening to its end. `config` is NULL until `cache_opened` is stored."""

    __tablename__ = "journals"
    __table_args__ = (UniqueConstraint("epoch"), {"sqlite_strict": True})

    id: Mapped[int] = mapped_column(Integer, primary_key=True)
    epoch: Mapped[str] = mapped_column(Text)
    name: Mapped[str] = mapped_column(Text)
    config: Mapped[str | None] = mapped_column(Text)
    token_policy: Mapped[str] = mapped_column(Text)
    format_version: Mapped[int] = mapped_column(Integer)
    created_us: Mapped[int] = mapped_column(Int64)


class TransactionRow(Base):
    """One outermost transaction: what was asked, how it ended, which seqs it holds, its link in the chain.

    `duration_us` is how long it took on the scheduler's thread, NULL where nobody measured it. The checkpoint
    is the newest that was stored since the last transaction that named one.
    """

    __tablename__ = "transactions"
    __table_args__ = (
        UniqueConstraint("journal_id", "previous_hash"),
        CheckConstraint("status IN ('committed', 'rolled_back')", name="status"),
        Index(None, "journal_id", "time_us"),
        Index(
            None,
            "journal_id",
            "request_id",
            "number",
            sqlite_where=text("request_id IS NOT NULL"),
            postgresql_where=text("request_id IS NOT NULL"),
        ),
        {"sqlite_strict": True, "sqlite_with_rowid": False},
    )

    journal_id: Mapped[int] = mapped_column(ForeignKey("journals.id"), primary_key=True)
    number: Mapped[int] = mapped_column(Int64, primary_key=True)
    op: Mapped[str] = mapped_column(Text)
    request_id: Mapped[str | None] = mapped_column(Text)
    status: Mapped[str] = mapped_column(Text)
    reason: Mapped[str] = mapped_column(Text)
    time_us: Mapped[int] = mapped_column(Int64)
    first_seq: Mapped[int] = mapped_column(Int64)
    event_count: Mapped[int] = mapped_column(Int64)
    previous_hash: Mapped[bytes] = mapped_column(LargeBinary)
    hash: Mapped[bytes] = mapped_column(LargeBinary)
    duration_us: Mapped[int | None] = mapped_column(Int64)
    checkpoint_seq: Mapped[int | None] = mapped_column(Int64)
    checkpoint_hash: Mapped[bytes | None] = mapped_column(
        LargeBinary,
        CheckConstraint("(checkpoint_seq IS NULL) = (checkpoint_hash IS NULL)", name="checkpoint"),
    )


class EventRow(Base):
    """One event. `node` and `request_id` repeat what the payload says, so that they can be looked up."""

    __tablename__ = "events"
    __table_args__ = (
        ForeignKeyConstraint(["journal_id", "txn"], ["transactions.journal_id", "transactions.number"]),
        CheckConstraint("undone IN (0, 1)", name="undone"),
        Index(None, "journal_id", "kind", "seq"),
        Index(None, "journal_id", "txn", info={ONLY_ON: "postgresql"}).ddl_if(dialect="postgresql"),
        Index(
            None,
            "journal_id",
            "node",
            "seq",
            sqlite_where=text("node IS NOT NULL"),
            postgresql_where=text("node IS NOT NULL"),
        ),
        Index(
            None,
            "journal_id",
            "request_id",
            "seq",
            sqlite_where=text("request_id IS NOT NULL"),
            postgresql_where=text("request_id IS NOT NULL"),
        ),
        {"sqlite_strict": True, "sqlite_with_rowid": False},
    )

    journal_id: Mapped[int] = mapped_column(Integer, primary_key=True)
    seq: Mapped[int] = mapped_column(Int64, primary_key=True)
    txn: Mapped[int] = mapped_column(Int64)
    kind: Mapped[str] = mapped_column(Text)
    version: Mapped[int] = mapped_column(Integer)
    node: Mapped[int | None] = mapped_column(Int64)
    request_id: Mapped[str | None] = mapped_column(Text)
    undone: Mapped[int] = mapped_column(Integer)
    payload: Mapped[str] = mapped_column(Text)
    blob: Mapped[bytes] = mapped_column(LargeBinary)


class CheckpointRow(Base):
    """A full state after the transaction that ends at `seq`; `digest` is what replay must find there.

    `number` and `chain_hash` are those of that transaction, so that the chain goes on from here once the
    rows before it were exported and pruned. The previous cells name the checkpoint that was stored before
    this one; NULL in the first. `hash` covers every other cell of the row.
    """

    __tablename__ = "checkpoints"
    __table_args__ = ({"sqlite_strict": True},)

    journal_id: Mapped[int] = mapped_column(ForeignKey("journals.id"), primary_key=True)
    seq: Mapped[int] = mapped_column(Int64, primary_key=True)
    number: Mapped[int] = mapped_column(Int64)
    chain_hash: Mapped[bytes] = mapped_column(LargeBinary)
    digest: Mapped[str] = mapped_column(Text)
    state: Mapped[bytes] = mapped_column(LargeBinary)
    hash: Mapped[bytes] = mapped_column(LargeBinary)
    previous_seq: Mapped[int | None] = mapped_column(Int64)
    previous_hash: Mapped[bytes | None] = mapped_column(
        LargeBinary,
        CheckConstraint("(previous_seq IS NULL) = (previous_hash IS NULL)", name="previous"),
    )


def fits_a_column(name: str) -> bool:
    """Whether the text columns of every database can hold `name`: no zero in it, and no half of a pair."""
    try:
        return b"\0" not in name.encode()
    except UnicodeEncodeError:
        return False


def stands_on(dialect: str) -> Callable[..., bool]:
    """For Alembic's comparison of tables with models (`include_object`): whether that kind of database should
    have a thing of the models."""

    def stands(thing: Any, _name: str | None, kind: str, _reflected: bool, _other: Any) -> bool:
        return kind != "index" or bool(thing.info.get(ONLY_ON, dialect) == dialect)

    return stands
