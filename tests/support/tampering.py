"""Changing stored rows behind the journal's back, past every constraint that can be switched off."""

import sqlite3

import psycopg
import sqlalchemy as sa

from kvledger.core import CacheConfig, HybridCache
from kvledger.journal import Journal
from kvledger.journal.database import store_url

ZEROS = {"sqlite": "zeroblob(40)", "postgresql": "decode(repeat('00', 40), 'hex')"}


def tamper(url: str, *statements: str) -> None:
    """Carry out statements as somebody with all rights would; {zeros} stands for forty zero bytes."""
    where = store_url(url)
    statements = tuple(
        statement.replace("{zeros}", ZEROS[where.get_backend_name()]) for statement in statements
    )
    if where.get_backend_name() == "sqlite":
        file = sqlite3.connect(where.database or "")
        file.execute("PRAGMA ignore_check_constraints = ON")
        for statement in statements:
            file.execute(statement)
        file.commit()
        file.close()
        return
    plain = sa.URL.create(
        "postgresql",
        username=where.username,
        password=where.password,
        host=where.host,
        port=where.port,
        database=where.database,
        query=where.query,
    )
    with psycopg.connect(plain.render_as_string(hide_password=False)) as server:
        # Foreign keys are triggers, and a replica fires none.
        server.execute("SET session_replication_role = replica")
        for statement in statements:
            server.execute(statement)


def record_small_life(url: str, *, name: str = "rank0") -> None:
    """A journal of a dozen transactions and three checkpoints, one of its transactions rolled back."""
    with Journal.open(url) as journal, journal.record(name=name, checkpoint_every=8) as recorder:
        config = CacheConfig(page_size=4, sliding_window=4, full_tokens=64, swa_tokens=64)
        cache = HybridCache(config, sink=recorder)
        for number in range(3):
            request = cache.open_request(f"r{number}", [*range(8), number, number])
            request.extend(10 - request.prefix_len)
            request.computed()
            request.finish()
            with cache.transaction("undone", request_id=f"r{number}") as transaction:
                cache.free(cache.alloc(4))
                transaction.rollback(reason="to show")
            recorder.flush()
        cache.checkpoint()
