"""Refusals: every answer that is not the one asked for is a problem document (RFC 9457), and says what to do.

Routes raise `Refusal` through the functions here, or let the journal's own errors pass: each kind of them has
a status. Nothing of a request is put into a document but what its sender wrote.
"""

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

from kvledger.api.schemas.common import Problem
from kvledger.api.told.hiding import Hiding
from kvledger.core.errors import (
    CacheError,
    InvalidArgument,
    JournalError,
    JournalFormatError,
    StoreUnavailable,
    UnknownJournal,
)

PROBLEM_TYPE = "application/problem+json"

RETRY_EMPTY_SECONDS = 1
"""When to ask again for the state of a journal that has none: its cache is opened in a moment, if ever."""

RETRY_STORE_SECONDS = 5
"""When to ask again while the database is away: about as long as a server takes to come back."""

FAULTS_TOLD = 10
"""Faults of one request that its answer names."""

VALUE_CHARACTERS = 80
"""Of a value that was refused, so much is quoted."""


class Refusal(Exception):
    """An answer other than the one asked for: a status, a title for the kind and a sentence for the case."""

    def __init__(
        self, status: int, *, title: str, detail: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.title = title
        self.detail = detail
        self.headers = dict(headers or {})


def unknown(what: str, *, detail: str) -> Refusal:
    """404: there is no such `what` (a noun: "journal", "node")."""
    return Refusal(404, title=f"Unknown {what}", detail=detail)


def conflict(title: str, *, detail: str) -> Refusal:
    """409: the journal, as it is, cannot answer this."""
    return Refusal(409, title=title, detail=detail)


def pruned(detail: str) -> Refusal:
    """410: it was in the store once, and was exported and pruned since."""
    return Refusal(410, title="Pruned", detail=detail)


def not_json() -> Refusal:
    """415: a body that does not say that it is JSON."""
    return Refusal(
        415,
        title="Not JSON",
        detail="the body has to be JSON and to say so: send the header Content-Type: application/json",
        headers={"Accept": "application/json"},
    )


def invalid(detail: str) -> Refusal:
    """422: a request that no state of the journal could make valid."""
    return Refusal(422, title="Invalid request", detail=detail)


def too_many(detail: str, *, retry_after_s: int) -> Refusal:
    """429: a limit of the service; `retry_after_s` is when to try again."""
    return Refusal(
        429, title="Too many requests", detail=detail, headers={"Retry-After": str(max(1, retry_after_s))}
    )


def unavailable(detail: str, *, retry_after_s: int = RETRY_STORE_SECONDS) -> Refusal:
    """503: not now."""
    return Refusal(
        503, title="Not available", detail=detail, headers={"Retry-After": str(max(1, retry_after_s))}
    )


def nothing_recorded() -> Refusal:
    """503: the journal has no state before its cache is opened."""
    return Refusal(
        503,
        title="Nothing recorded",
        detail="this journal has no transaction yet: there is a state as soon as its cache was opened",
        headers={"Retry-After": str(RETRY_EMPTY_SECONDS)},
    )


def problem_response(refusal: Refusal, *, instance: str | None = None) -> Response:
    """The document of a refusal, as it is sent."""
    problem = Problem(
        title=refusal.title, status=refusal.status, detail=_sendable(refusal.detail), instance=instance
    )
    return JSONResponse(
        problem.model_dump(exclude_none=True),
        status_code=refusal.status,
        headers={"Cache-Control": "no-store", **refusal.headers},
        media_type=PROBLEM_TYPE,
    )


def install_problems(app: FastAPI) -> None:
    """Let every error that a route may end in become a problem document; faults are headers.py's."""

    def refused(request: Request, error: Exception) -> Response:
        refusal = refusal_of(error)
        if isinstance(error, JournalError) and not isinstance(error, StoreUnavailable):
            # A journal that cannot be read quotes the cell that is damaged, whatever stands there.
            hide: Hiding = app.state.library.hide
            refusal.detail = hide.message(refusal.detail)
        if refusal.status == 405:
            refusal.headers.update(_allowed(app, request.url.path))
        return problem_response(refusal)

    for kind in (Refusal, RequestValidationError, HTTPException, CacheError):
        app.add_exception_handler(kind, refused)


def refusal_of(error: Exception) -> Refusal:
    """The refusal that an error amounts to. What is not known here is a fault of the service: 500."""
    match error:
        case Refusal():
            return error
        case RequestValidationError():
            return invalid(_faults(error))
        case HTTPException():
            return _of_http(error)
        case UnknownJournal():
            return unknown("journal", detail=str(error))
        case InvalidArgument():
            return invalid(str(error))
        case JournalFormatError():
            return conflict("Unreadable journal", detail=str(error))
        case StoreUnavailable():
            return unavailable(str(error))
        case JournalError():
            return conflict("The journal cannot answer", detail=str(error))
    return Refusal(500, title="Fault", detail="the service failed at this request; its log says why")


def _of_http(error: HTTPException) -> Refusal:
    titles = {404: "Not found", 405: "Method not allowed"}
    details = {
        404: "there is nothing at this address; /openapi.json lists what there is",
        405: "this address does not take that method",
    }
    status = error.status_code
    return Refusal(
        status,
        title=titles.get(status, "Refused"),
        detail=details.get(status, str(error.detail)),
        headers=error.headers,
    )


def _allowed(app: FastAPI, path: str) -> dict[str, str]:
    """The header that names what an address takes: where two routes share it, what both of them take."""
    methods: set[str] = set()
    for template, operations in app.openapi()["paths"].items():
        if compile_path(template)[0].match(path):
            methods.update(method.upper() for method in operations)
    return {"Allow": ", ".join(sorted(methods))} if methods else {}


def _faults(error: RequestValidationError) -> str:
    """What is wrong with a request, in one sentence; values are cut."""
    told = []
    faults = error.errors()
    for fault in faults[:FAULTS_TOLD]:
        where = ".".join(str(step) for step in fault["loc"])
        told.append(f"{where}: {fault['msg']}{_quoted(fault)}")
    if len(faults) > FAULTS_TOLD:
        told.append(f"and {len(faults) - FAULTS_TOLD} more")
    return "; ".join(told)


def _quoted(fault: Any) -> str:
    value = fault.get("input")
    if value is None or isinstance(value, dict | list | bytes) or fault["type"] == "missing":
        return ""
    text = repr(value)
    return f", not {text if len(text) <= VALUE_CHARACTERS else text[:VALUE_CHARACTERS] + '...'}"


def _sendable(text: str) -> str:
    """The text without halves of surrogate pairs, which no UTF-8 can hold."""
    return text.encode(errors="replace").decode()
