"""Audits that the service runs in the background."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool

from kvledger.api.schemas.common import JSON_SEQ_MAX, Answer
from kvledger.journal.audit.verdict import Verdict


class AuditRequest(BaseModel):
    """What to audit: up to `upto_seq` (None: all there is); `chain` re-reads every stored byte too."""

    model_config = ConfigDict(extra="forbid")

    upto_seq: Annotated[int | None, Field(ge=1, le=JSON_SEQ_MAX)] = None
    chain: StrictBool = True


class AuditOut(Answer):
    """An audit. `verdict` is there once `state` is "done"; `problem` says why one is "failed" to run."""

    id: str
    journal: int
    state: Literal["waiting", "running", "done", "failed", "cancelled"]
    upto_seq: int | None
    chain: bool
    done_events: int
    total_events: int | None
    started_us: int
    ended_us: int | None
    verdict: Verdict | None
    problem: str | None
