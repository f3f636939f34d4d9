"""Audits in the background: begin one, watch it, cancel it, read its verdict."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request, Response

from kvledger.api.audits import Audits
from kvledger.api.cursors import decode_cursor, encode_cursor
from kvledger.api.routes.dependencies import (
    JSON_BODY,
    LIMIT,
    OF_A_JOURNAL,
    WITH_BODY,
    CursorParam,
    Limit,
    Opened,
)
from kvledger.api.schemas.audits import AuditOut, AuditRequest
from kvledger.api.schemas.common import Page

router = APIRouter(prefix="/v1/journals/{journal}/audits", tags=["audits"], responses=OF_A_JOURNAL)

AuditId = Annotated[str, Path(max_length=64)]

BEGUN: dict[int | str, dict[str, Any]] = {
    202: {"description": "It runs, or waits for those before it; Location is where to watch it."}
}


def _audits(request: Request) -> Audits:
    audits: Audits = request.app.state.audits
    return audits


AuditsDep = Annotated[Audits, Depends(_audits)]


@router.post("", status_code=202, dependencies=[JSON_BODY], responses=BEGUN | WITH_BODY)
def begin_audit(
    opened: Opened, audits: AuditsDep, response: Response, wanted: AuditRequest | None = None
) -> AuditOut:
    """Check every invariant at every event, up to `upto_seq`; with `chain` re-read every stored byte too."""
    begun = audits.start(opened, AuditRequest() if wanted is None else wanted)
    response.headers["Location"] = f"/v1/journals/{opened.id}/audits/{begun.id}"
    return begun


@router.get("")
def audits(
    opened: Opened, audits: AuditsDep, cursor: CursorParam = None, limit: Limit = LIMIT
) -> Page[AuditOut]:
    """The audits of this journal that this process remembers, newest first."""
    known = audits.of(opened.id)
    if cursor is not None:
        (before,) = decode_cursor("audits", cursor, types=(int,))
        known = [(serial, told) for serial, told in known if serial < before]
    shown = known[:limit]
    return Page(
        items=tuple(told for _, told in shown),
        next=encode_cursor("audits", shown[-1][0]) if len(known) > limit else None,
    )


@router.get("/{audit}")
def one_audit(opened: Opened, audits: AuditsDep, audit: AuditId) -> AuditOut:
    """One audit, and its verdict once it is done."""
    return audits.get(opened.id, audit)


@router.post("/{audit}/cancel")
def cancel_audit(opened: Opened, audits: AuditsDep, audit: AuditId) -> AuditOut:
    """Let an audit end before its time. One that is over stays what it is."""
    return audits.cancel(opened.id, audit)
