"""What a service tells its own process to serve, said once over their connection and nowhere else.

The key of the labels and the database's password are in it: a command line and an environment can be read by
others, a socket that has no name cannot.
"""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from kvledger.api.library import Library
from kvledger.api.settings import ApiSettings


@dataclass(frozen=True, slots=True)
class Orders:
    """The store, what of it is hidden and how, the limits, and whose process it is."""

    database: str
    journal: int | None
    hiding: Mapping[str, Any]
    limits: Mapping[str, int]
    parent: int

    @classmethod
    def of(cls, library: Library, settings: ApiSettings) -> "Orders":
        """The orders by which another process answers as this one would."""
        limits = settings.model_dump(
            include={"body_bytes", "query_bytes", "audits_waiting", "audits_kept", "followed_journals"}
        )
        return cls(
            database=library.store.url.render_as_string(hide_password=False),
            journal=None if library.live is None else library.live.journal_id,
            hiding=library.hide.shared(),
            limits=limits,
            parent=os.getpid(),
        )

    def told(self) -> dict[str, Any]:
        """As JSON has them."""
        return asdict(self)
