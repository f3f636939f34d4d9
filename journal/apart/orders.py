"""What a recorder asks of the process that stores for it."""

from dataclasses import dataclass, field

from kvledger.journal.durability import RecorderSettings
from kvledger.journal.tokens import TokenPolicy


@dataclass(frozen=True, slots=True)
class Orders:
    """What to record where, as `Journal.record` explains it; `drawn` is the key of "none"."""

    url: str = field(repr=False)
    lock_timeout_s: float
    tokens: TokenPolicy
    key: bytes | None = field(repr=False)
    drawn: bytes | None = field(repr=False)
    settings: RecorderSettings
    name: str
    checkpoint_every: int
    max_bytes: int | None
    export_to: str | None
