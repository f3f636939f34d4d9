"""What an exported file says about itself: which journal, which part of it, and how the part ends.

A file is a *piece*: transactions `first_number` to `last_number` of one journal. It begins with its facts and
closes with its end, so that a file that was cut short shows it. A piece that does not begin with the journal
carries the checkpoint it goes on from, if there was one, and can then be read alone.

Facts and end are JSON objects, stored as docs/format.md, "Exported files", says.
"""

import base64
import binascii
import json
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    field_serializer,
    field_validator,
    model_serializer,
)

from kvledger.core.errors import JournalFormatError
from kvledger.core.ids import Seq, TxnId
from kvledger.journal.chain import HASH_BYTES, CheckpointName
from kvledger.journal.info import JournalInfo
from kvledger.journal.records import StoredCheckpoint

EXPORT_VERSIONS = (1, 2)
"""Versions of the form of exported files, each that of the journal in them; another one is refused."""

Int64 = Annotated[int, Field(ge=-(2**63), lt=2**63)]
"""What a column of the store holds: the hashes are over such integers."""


def _bytes_of(text: Any) -> bytes:
    try:
        return text if isinstance(text, bytes) else base64.b64decode(text, validate=True)
    except (TypeError, binascii.Error) as error:
        raise ValueError(f"{text!r:.40} is no base64") from error


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class PreviousCheckpoint(_Part):
    """Which checkpoint came before one."""

    seq: Int64
    hash: bytes

    @field_validator("hash", mode="before")
    @classmethod
    def _decoded(cls, value: Any) -> bytes:
        return _bytes_of(value)

    @field_serializer("hash")
    def _encoded(self, value: bytes) -> str:
        return base64.b64encode(value).decode()


class CheckpointFacts(_Part):
    """A checkpoint as it is written into a file; bytes are base64 in JSON. `previous` is left out where there
    is none."""

    seq: Int64
    number: Int64
    chain_hash: bytes
    digest: str
    state: bytes
    hash: bytes
    previous: PreviousCheckpoint | None = None

    @field_validator("chain_hash", "state", "hash", mode="before")
    @classmethod
    def _decoded(cls, value: Any) -> bytes:
        return _bytes_of(value)

    @field_serializer("chain_hash", "state", "hash")
    def _encoded(self, value: bytes) -> str:
        return base64.b64encode(value).decode()

    @model_serializer(mode="wrap")
    def _without_none(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        found: dict[str, Any] = handler(self)
        if found["previous"] is None:
            del found["previous"]
        return found

    @classmethod
    def of(cls, kept: StoredCheckpoint) -> "CheckpointFacts":
        """The facts of a stored checkpoint."""
        return cls(
            seq=kept.seq,
            number=kept.number,
            chain_hash=kept.chain_hash,
            digest=kept.digest,
            state=kept.state,
            hash=kept.hash,
            previous=None if kept.previous is None else PreviousCheckpoint(**kept.previous._asdict()),
        )

    def stored(self) -> StoredCheckpoint:
        """The checkpoint itself."""
        return StoredCheckpoint(
            seq=Seq(self.seq),
            number=TxnId(self.number),
            chain_hash=self.chain_hash,
            digest=self.digest,
            state=self.state,
            hash=self.hash,
            previous=None if self.previous is None else CheckpointName(self.previous.seq, self.previous.hash),
        )


class JournalFacts(_Part):
    """The journal's own row; `config` is the stored JSON text."""

    id: Int64
    epoch: str
    name: str
    config: str | None
    token_policy: str
    format_version: Int64
    created_us: Int64

    def info(self) -> JournalInfo:
        """The same as a reader of a database has it. Raises JournalFormatError for a malformed config."""
        return JournalInfo.from_row(self)


class PieceFacts(_Part):
    """The beginning of a piece: `previous_hash` is the chain's before its first transaction."""

    kvledger_export: Literal[1, 2]
    journal: JournalFacts
    first_number: Int64
    first_seq: Int64
    previous_hash: bytes
    base: CheckpointFacts | None

    @field_validator("previous_hash", mode="before")
    @classmethod
    def _decoded(cls, value: Any) -> bytes:
        return _bytes_of(value)

    @field_serializer("previous_hash")
    def _encoded(self, value: bytes) -> str:
        return base64.b64encode(value).decode()


class PieceEnd(_Part):
    """The end of a piece: `last_seq` and `hash` are the chain's there; `checkpoints` are (seq, number)
    pairs."""

    transactions: Int64
    events: Int64
    last_number: Int64
    last_seq: Int64
    hash: bytes
    checkpoints: list[tuple[Int64, Int64, str]]

    @field_validator("hash", mode="before")
    @classmethod
    def _decoded(cls, value: Any) -> bytes:
        return _bytes_of(value)

    @field_validator("checkpoints", mode="before")
    @classmethod
    def _tuples(cls, value: Any) -> Any:
        # JSON has lists where strict tuples are asked for; all else is left for the model to refuse.
        if type(value) is not list:
            return value
        return [tuple(place) if type(place) is list else place for place in value]

    @field_serializer("hash")
    def _encoded(self, value: bytes) -> str:
        return base64.b64encode(value).decode()


def no_name_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these pairs. Raises ValueError where a name is given twice: readers would differ."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("it gives a name twice")
    return found


def read_facts(text: str | bytes, *, where: str) -> PieceFacts:
    """The facts in `text`. Raises JournalFormatError, naming `where`, for anything else."""
    facts: PieceFacts = _validated(PieceFacts, text, where)
    if facts.kvledger_export != facts.journal.format_version:
        raise JournalFormatError(
            f"{where} is of export version {facts.kvledger_export} and holds a journal of format version "
            f"{facts.journal.format_version}"
        )
    if facts.first_number < 1 or facts.first_seq < 1 or len(facts.previous_hash) != HASH_BYTES:
        raise JournalFormatError(f"{where} begins at transaction {facts.first_number}: there is none such")
    try:
        facts.journal.info()
    except JournalFormatError as error:
        raise JournalFormatError(f"{where}: {error}") from error
    return facts


def read_end(text: str | bytes, *, where: str) -> PieceEnd:
    """The end in `text`. Raises JournalFormatError, naming `where`, for anything else."""
    end: PieceEnd = _validated(PieceEnd, text, where)
    return end


def _validated(model: Any, text: str | bytes, where: str) -> Any:
    try:
        found = json.loads(text, object_pairs_hook=no_name_twice)
        if isinstance(found, dict) and found.get("kvledger_export", 1) not in EXPORT_VERSIONS:
            raise JournalFormatError(
                f"{where} is of export version {found['kvledger_export']!r}; this version reads "
                f"{' and '.join(map(str, EXPORT_VERSIONS))}"
            )
        return model.model_validate(found)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        raise JournalFormatError(
            f"{where} does not say what an exported journal says: {fault['loc']}: {fault['msg']}"
        ) from error
    except (ValueError, RecursionError) as error:
        raise JournalFormatError(f"{where} is no exported journal: {error}") from error
