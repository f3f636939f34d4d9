"""What routes share: the journal of the path, the seq of the query, limits, cursors, documented refusals."""

from typing import Annotated, Any

from fastapi import Depends, Path, Query, Request
from starlette.concurrency import run_in_threadpool

from kvledger.api.cursors import CURSOR_CHARACTERS
from kvledger.api.library import Library, OpenedJournal
from kvledger.api.problems import PROBLEM_TYPE, not_json
from kvledger.api.schemas.common import SEQ_MAX
from kvledger.api.told.events import Teller

JOURNAL_MAX = 2**31 - 1
"""A store's integer for a journal's number holds no more."""

LIMIT = 100
LIMIT_MAX = 1_000
"""Items of one page: by default what a screen shows some of, at most what is built in a tenth of a second."""

JournalId = Annotated[
    int, Path(ge=1, le=JOURNAL_MAX, description="Number of the journal in the store.", examples=[1])
]
AtSeq = Annotated[
    int | None,
    Query(
        ge=0,
        le=SEQ_MAX,
        description="The state at the last transaction boundary at or before this seq; the newest without.",
    ),
]
Limit = Annotated[int, Query(ge=1, le=LIMIT_MAX, description="Items of one page at most.")]
CursorParam = Annotated[
    str | None,
    Query(max_length=CURSOR_CHARACTERS, description="`next` of the page before; leave it out for the first."),
]


# These are coroutines so that they need no worker's thread: in a scheduler's process each way to a worker and
# back asks twice for the interpreter's lock, which the scheduler has.


async def _library(request: Request) -> Library:
    library: Library = request.app.state.library
    return library


LibraryDep = Annotated[Library, Depends(_library)]


async def _opened(library: LibraryDep, journal: JournalId) -> OpenedJournal:
    known = library.opened_before(journal)
    return known if known is not None else await run_in_threadpool(library.opened, journal)


Opened = Annotated[OpenedJournal, Depends(_opened)]


async def _teller(library: LibraryDep, opened: Opened) -> Teller:
    return Teller.of(library, opened)


TellerDep = Annotated[Teller, Depends(_teller)]


async def _json_body(request: Request) -> None:
    """Refuse (415) a body that does not say that it is JSON: a page of another site can send any other."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    is_json = kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))
    if not is_json and await request.body():
        raise not_json()


JSON_BODY = Depends(_json_body)
"""For `dependencies` of a route that has a body."""

_TOLD = {
    304: "The reader has this answer already.",
    400: "The request is not HTTP as it should be.",
    401: "A token is needed: `Authorization: Bearer ...`.",
    403: "Another site sent this request.",
    404: "There is no such thing.",
    409: "The journal, as it is, cannot answer this.",
    410: "It was exported and pruned.",
    413: "The body is larger than the service takes.",
    414: "The address is longer than the service takes.",
    415: "The body is not JSON.",
    422: "The request is not valid.",
    429: "A limit of the service; `Retry-After` says when to try again.",
    503: "Not now; `Retry-After` says when to try again.",
}


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """How these statuses are documented, for `responses` of a route."""
    schema = {"schema": {"$ref": "#/components/schemas/Problem"}}
    return {
        status: {"description": _TOLD[status]}
        | ({} if status == 304 else {"content": {PROBLEM_TYPE: schema}})
        for status in statuses
    }


EVERYWHERE = refusals(400, 401, 403, 413, 414, 422, 429, 503)
"""What any route may answer."""

OF_A_JOURNAL = refusals(404, 409, 410)
"""What any route of one journal may answer besides."""

WITH_BODY = refusals(415)
"""What a route with a body may answer besides."""

KEPT = refusals(304)
"""What a route whose answers can be kept may answer besides."""
