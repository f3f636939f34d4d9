"""The event stream of a journal: Server-Sent Events that go on where they were cut."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Header, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from kvledger.api.problems import invalid, unknown
from kvledger.api.routes.dependencies import OF_A_JOURNAL, LibraryDep, Opened, TellerDep
from kvledger.api.routes.events import Kinds, NodeParam, RequestParam, event_filter
from kvledger.api.routes.lists import SeqParam, missing_before
from kvledger.api.schemas.common import SEQ_MAX
from kvledger.api.streams import EventStream, Listening, Streams
from kvledger.journal.lookups.questions import check_question

router = APIRouter(prefix="/v1/journals/{journal}/events", tags=["events"], responses=OF_A_JOURNAL)

STREAM = {
    "description": "Events as they are stored. `event: event` has an EventOut as data and its seq as id; "
    "`event: head` says how far the journal is, at first and where nothing comes; `event: missing` says at "
    "the beginning that events before `not_here_before`, which should be in the stream, were pruned.",
    "content": {
        "text/event-stream": {
            "schema": {"type": "string"},
            "example": "id: 17\r\nevent: event\r\ndata: {...}\r\n\r\n",
        }
    },
}


@router.get("/stream", response_class=Response, responses={200: STREAM})
async def stream(
    http: Request,
    library: LibraryDep,
    opened: Opened,
    teller: TellerDep,
    kinds: Kinds = [],  # noqa: B006
    node: NodeParam = None,
    request: RequestParam = None,
    after_seq: SeqParam = None,
    last_event_id: Annotated[str | None, Header(description="Seq of the last event seen.")] = None,
) -> Response:
    """Events behind `Last-Event-ID`, or `after_seq`, or from now on; then those that come, for ever."""
    wanted = event_filter(kinds=kinds, node=node, request=request)
    check_question(wanted, None)
    after = _seq_in(last_event_id) if last_event_id else after_seq
    head = await run_in_threadpool(lambda: opened.reader.head().seq)
    if after is None:
        after = head
    if after > head:
        raise unknown("seq", detail=f"seq {after} is not there yet, the journal ends at {head}")
    missing = await run_in_threadpool(missing_before, opened, first_seq=after + 1)
    streams: Streams = http.app.state.streams
    same = partial(library.check_store, library.opened_file)
    return EventStream(Listening(opened, teller, wanted, after, missing, check_store=same), streams)


def _seq_in(last_event_id: str) -> int:
    text = last_event_id.strip()
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(SEQ_MAX))):
        raise invalid(f"Last-Event-ID is the seq of an event, not {last_event_id[:40]!r}")
    return int(text)
