"""A journal's own row: under which settings it was recorded, and what its checkpoints' hashes have to be."""

import json
import struct
from dataclasses import dataclass
from typing import Any

from kvledger.core.errors import JournalError, JournalFormatError
from kvledger.journal.chain import Owner, checkpoint_hash, genesis_hash
from kvledger.journal.fields import canonical_json
from kvledger.journal.models import READABLE_FORMATS
from kvledger.journal.records import StoredCheckpoint


@dataclass(frozen=True, slots=True)
class JournalInfo:
    """The row of a journal. `config` is the recorded CacheConfig as JSON; None before `cache_opened`."""

    id: int
    epoch: str
    name: str
    config: dict[str, Any] | None
    token_policy: str
    format_version: int
    created_us: int

    @classmethod
    def from_row(cls, row: Any) -> "JournalInfo":
        """Read a row of the journals table. Raises JournalFormatError for a config that is no JSON."""
        config = None
        if row.config is not None:
            try:
                config = json.loads(row.config)
            except (ValueError, RecursionError) as error:
                raise JournalFormatError(f"the config of journal {row.id} is no JSON: {error}") from error
        return cls(row.id, row.epoch, row.name, config, row.token_policy, row.format_version, row.created_us)

    def recorded_config(self) -> dict[str, Any] | None:
        """The configuration if it is one: a row may hold any JSON."""
        return self.config if isinstance(self.config, dict) else None

    def check_format(self) -> None:
        """Raise JournalFormatError for a journal of a format that this version does not read."""
        if self.format_version not in READABLE_FORMATS:
            raise JournalFormatError(
                f"journal {self.id} is of format version {self.format_version}; this version reads "
                f"{' and '.join(map(str, READABLE_FORMATS))}"
            )

    @property
    def genesis(self) -> bytes:
        """The hash before the first transaction."""
        return genesis_hash(
            format_version=self.format_version,
            created_us=self.created_us,
            epoch=self.epoch,
            name=self.name,
            token_policy=self.token_policy,
        )

    def hash_of(self, checkpoint: StoredCheckpoint) -> bytes | None:
        """The hash that a checkpoint of this journal has to have; None where it holds what none of it can."""
        try:
            return checkpoint_hash(
                Owner(
                    self.format_version,
                    self.epoch,
                    self.genesis,
                    None if self.config is None else canonical_json(self.config).encode(),
                ),
                seq=checkpoint.seq,
                number=checkpoint.number,
                chain_hash=checkpoint.chain_hash,
                digest=checkpoint.digest.encode(),
                state=checkpoint.state,
                previous=checkpoint.previous,
            )
        except (struct.error, TypeError, JournalError):  # the last for a config that was never stored
            return None

    def check_checkpoint(self, found: StoredCheckpoint) -> None:
        """Raise JournalFormatError for a checkpoint that was changed after it was stored."""
        if found.hash != self.hash_of(found):
            raise JournalFormatError(
                f"the checkpoint at seq {found.seq} was changed: its hash is not that of its row"
            )
