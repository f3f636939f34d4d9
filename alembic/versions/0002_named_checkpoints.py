"""How long a transaction took, and which checkpoint it and the next checkpoint name: journals of format 2.

The columns are added in place, for a store may hold the events of months. They are NULL in every journal that
was recorded before, which stays one of format 1.
"""

import sqlalchemy as sa
from alembic import op

from kvledger.core.errors import JournalError

revision: str = "0002"
down_revision: str | None = "0001"
branch_labels: str | None = None
depends_on: str | None = None

INT64 = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add the columns; no row is rewritten."""
    op.add_column("transactions", sa.Column("duration_us", INT64, nullable=True))
    op.add_column("transactions", sa.Column("checkpoint_seq", INT64, nullable=True))
    op.add_column(
        "transactions", _hash_with("checkpoint_hash", "checkpoint_seq", "ck_transactions_checkpoint")
    )
    op.add_column("checkpoints", sa.Column("previous_seq", INT64, nullable=True))
    op.add_column("checkpoints", _hash_with("previous_hash", "previous_seq", "ck_checkpoints_previous"))


def downgrade() -> None:
    """Drop the columns again. Raises JournalError where a journal of format 2 has evidence in them."""
    journals = sa.table("journals", sa.column("id"), sa.column("format_version"))
    newer = op.get_bind().scalar(
        sa.select(journals.c.id).where(journals.c.format_version > 1).order_by(journals.c.id).limit(1)
    )
    if newer is not None:
        raise JournalError(
            f"journal {newer} is of format 2: schema 0001 has no room for what its hashes are over, so it "
            "could not be verified any more; nothing was changed. Keep it in a store of schema 0002"
        )
    # The check of a pair stands at its second column and goes with it.
    op.drop_column("checkpoints", "previous_hash")
    op.drop_column("checkpoints", "previous_seq")
    op.drop_column("transactions", "checkpoint_hash")
    op.drop_column("transactions", "checkpoint_seq")
    op.drop_column("transactions", "duration_us")


def _hash_with(name: str, seq: str, check: str) -> "sa.Column[bytes]":
    """A column that holds a hash exactly where `seq` holds a seq."""
    both = sa.CheckConstraint(f"({seq} IS NULL) = ({name} IS NULL)", name=op.f(check))
    return sa.Column(name, sa.LargeBinary(), both, nullable=True)
