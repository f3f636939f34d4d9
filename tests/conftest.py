"""Fixtures that several folders use; what they are is told where they are defined."""

from tests.support.postgres import empty_database, postgresql_server, postgresql_store
from tests.support.stores import store

__all__ = ["empty_database", "postgresql_server", "postgresql_store", "store"]
