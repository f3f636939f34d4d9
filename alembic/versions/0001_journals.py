"""Journals, transactions, events and checkpoints: the first schema."""

import sqlalchemy as sa
from alembic import op

revision: str = "0001"
down_revision: str | None = None
branch_labels: str | None = None
depends_on: str | None = None

INT64 = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the tables and their indexes."""
    op.create_table(
        "journals",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("config", sa.Text(), nullable=True),
        sa.Column("token_policy", sa.Text(), nullable=False),
        sa.Column("format_version", sa.Integer(), nullable=False),
        sa.Column("created_us", INT64, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_journals"),
        sa.UniqueConstraint("epoch", name="uq_journals_epoch"),
        sqlite_strict=True,
    )
    op.create_table(
        "transactions",
        sa.Column("journal_id", sa.Integer(), nullable=False),
        sa.Column("number", INT64, nullable=False),
        sa.Column("op", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("time_us", INT64, nullable=False),
        sa.Column("first_seq", INT64, nullable=False),
        sa.Column("event_count", INT64, nullable=False),
        sa.Column("previous_hash", sa.LargeBinary(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("journal_id", "number", name="pk_transactions"),
        sa.UniqueConstraint("journal_id", "previous_hash", name="uq_transactions_journal_id_previous_hash"),
        sa.CheckConstraint("status IN ('committed', 'rolled_back')", name=op.f("ck_transactions_status")),
        sa.ForeignKeyConstraint(["journal_id"], ["journals.id"], name="fk_transactions_journals"),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    op.create_index("ix_transactions_journal_id_time_us", "transactions", ["journal_id", "time_us"])
    op.create_index(
        "ix_transactions_journal_id_request_id_number",
        "transactions",
        ["journal_id", "request_id", "number"],
        sqlite_where=sa.text("request_id IS NOT NULL"),
        postgresql_where=sa.text("request_id IS NOT NULL"),
    )
    op.create_table(
        "events",
        sa.Column("journal_id", sa.Integer(), nullable=False),
        sa.Column("seq", INT64, nullable=False),
        sa.Column("txn", INT64, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("node", INT64, nullable=True),
        sa.Column("request_id", sa.Text(), nullable=True),
        sa.Column("undone", sa.Integer(), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("blob", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("journal_id", "seq", name="pk_events"),
        sa.ForeignKeyConstraint(
            ["journal_id", "txn"],
            ["transactions.journal_id", "transactions.number"],
            name="fk_events_transactions",
        ),
        sa.CheckConstraint("undone IN (0, 1)", name=op.f("ck_events_undone")),
        sqlite_strict=True,
        sqlite_with_rowid=False,
    )
    op.create_index("ix_events_journal_id_kind_seq", "events", ["journal_id", "kind", "seq"])
    for column in ("node", "request_id"):
        op.create_index(
            f"ix_events_journal_id_{column}_seq",
            "events",
            ["journal_id", column, "seq"],
            sqlite_where=sa.text(f"{column} IS NOT NULL"),
            postgresql_where=sa.text(f"{column} IS NOT NULL"),
        )
    op.create_table(
        "checkpoints",
        sa.Column("journal_id", sa.Integer(), nullable=False),
        sa.Column("seq", INT64, nullable=False),
        sa.Column("number", INT64, nullable=False),
        sa.Column("chain_hash", sa.LargeBinary(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("state", sa.LargeBinary(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("journal_id", "seq", name="pk_checkpoints"),
        sa.ForeignKeyConstraint(["journal_id"], ["journals.id"], name="fk_checkpoints_journals"),
        sqlite_strict=True,
    )


def downgrade() -> None:
    """Drop everything, children first."""
    for table in ("checkpoints", "events", "transactions", "journals"):
        op.drop_table(table)
