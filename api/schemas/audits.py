"""Audits that the service runs in the background, and the anchors that they are held against."""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StrictBool, model_validator

from kvledger.api.schemas.common import JSON_SEQ_MAX, WHOLE, Answer
from kvledger.journal.audit.verdict import Verdict
from kvledger.journal.chain_check import Signature

PUBLIC_KEY = (
    r"^-----BEGIN PUBLIC KEY-----\r?\nMCowBQYDK2VwAyEA[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=\r?\n"
    r"-----END PUBLIC KEY-----\r?\n?$"
)
"""An Ed25519 key as PEM (RFC 8410): the first 12 of its 44 bytes are the same for every one."""

Count = Annotated[int, Field(ge=0, le=JSON_SEQ_MAX), WHOLE]
Link = Annotated[str, Field(pattern=r"^[0-9a-fA-F]{80}$")]
CheckpointHash = Annotated[str, Field(pattern=r"^[0-9a-fA-F]{64}$")]


class AnchorIn(BaseModel):
    """What every anchor has: the place that it names, the hash there, and perhaps a signature over them."""

    model_config = ConfigDict(extra="forbid")

    epoch: Annotated[str, Field(pattern=r"^[!-~]{1,64}$", description="Of the journal that it was taken of.")]
    number: Annotated[Count, Field(description="The last transaction.")]
    seq: Count
    hash: Link
    signature: Annotated[str | None, Field(pattern=r"^[0-9a-fA-F]{128}$")] = None


class AnchorIn1(AnchorIn):
    """An anchor of version 1, which names no checkpoint."""

    anchor: Annotated[int, Field(ge=1, le=1), WHOLE]


class AnchorIn2(AnchorIn):
    """An anchor of version 2 that was taken before there was a checkpoint."""

    anchor: Annotated[int, Field(ge=2, le=2), WHOLE]
    checkpoint_seq: None
    checkpoint_hash: None


class AnchorInCheckpoint(AnchorIn):
    """An anchor of version 2, and the newest checkpoint at that time."""

    anchor: Annotated[int, Field(ge=2, le=2), WHOLE]
    checkpoint_seq: Count
    checkpoint_hash: CheckpointHash


class KeptAnchorIn(BaseModel):
    """An anchor as somebody kept it: what `kvledger anchor` printed, and the key that it must be signed with.

    With `public_key`, an Ed25519 key in PEM, one that is not signed with it counts as forged.
    """

    model_config = ConfigDict(extra="forbid")

    document: AnchorIn1 | AnchorIn2 | AnchorInCheckpoint
    public_key: Annotated[str | None, Field(pattern=PUBLIC_KEY)] = None


def _anchor_needs_chain(schema: dict[str, Any]) -> None:
    """Let the document say what the model checks."""
    schema["not"] = {
        "required": ["anchor", "chain"],
        "properties": {"anchor": {"type": "object"}, "chain": {"const": False}},
    }


class AuditRequest(BaseModel):
    """What to audit: up to `upto_seq` (None: all there is); `chain` re-reads every stored byte too.

    With `anchor` the chain, which it cannot do without, is held against it: was the end cut off since, or the
    journal replaced? It may name what lies past `upto_seq`: the chain is read to its end in any case.
    """

    model_config = ConfigDict(extra="forbid", json_schema_extra=_anchor_needs_chain)

    upto_seq: Annotated[int | None, Field(ge=1, le=JSON_SEQ_MAX), WHOLE] = None
    chain: StrictBool = True
    anchor: KeptAnchorIn | None = None

    @model_validator(mode="after")
    def _has_chain(self) -> Self:
        if self.anchor is not None and not self.chain:
            raise ValueError("an anchor is held against the chain: leave chain out, or let it be true")
        return self


class AuditOut(Answer):
    """An audit. `verdict` is there once `state` is "done"; `problem` says why one is "failed" to run.

    `signature` tells of the anchor that was given, None where there was none: it is "not_checked" where there
    was no key to check it with.
    """

    id: str
    journal: int
    state: Literal["waiting", "running", "done", "failed", "cancelled"]
    upto_seq: int | None
    chain: bool
    signature: Signature | None
    done_events: int
    total_events: int | None
    started_us: int
    ended_us: int | None
    verdict: Verdict | None
    problem: str | None
