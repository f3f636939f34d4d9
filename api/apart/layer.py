"""Which questions go to the process of their own, and how its answers come back: unread.

What goes there is about what can never change: states at seqs behind which more is stored already, and what
differs between two of them. And what is read from the store alone: lists of events, histories, audits. All
else is the newest state, which is at hand here. Who may ask, how much and how often was decided further out;
what the process cannot answer is answered here.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import parse_qsl

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kvledger.api.apart.link import Answered, ProcessGone
from kvledger.api.apart.process import OwnProcess
from kvledger.api.audits import Audits
from kvledger.api.library import Library
from kvledger.api.problems import Refusal
from kvledger.api.schemas.common import SEQ_MAX
from kvledger.core.errors import JournalError

PASSED_ON = ("accept", "accept-encoding", "content-type", "if-none-match")
"""Headers on which answers depend; tokens and cookies stay here."""

BODIES = frozenset({"explain", "audits"})
"""What takes a body with a POST."""

STATES = frozenset({"diff", "eviction", "leases", "nodes", "pools", "requests", "slots", "tree"})
"""What shows a state, and says by its query of which seq."""

STORED = frozenset({"anomalies", "events", "marks", "request-history", "transactions"})
"""What is read from the store, and cheap: while the process starts it is read here, and nobody waits."""

STREAM = "events/stream"
"""Has no end, and its listener is here."""

_OF_A_JOURNAL = re.compile(r"/v1/journals/([0-9]{1,10})/(.*[^/])")
_SEQ = re.compile(r"[0-9]{1,19}")
_HISTORY = re.compile(r"(?:nodes|slots/[a-z]+)/[0-9]+/history")
_AT = re.compile(rb'"at"\s*:\s*([0-9]{1,16})\s*[,}]')


@dataclass(frozen=True, slots=True)
class _Question:
    """A request of the kind that may go there: the journal, and what is asked of it."""

    scope: Scope
    journal: int
    what: str

    @property
    def is_audit(self) -> bool:
        return self.what == "audits" or self.what.startswith("audits/")

    def seqs(self) -> list[str]:
        """The seqs that the query names, as it has them; none where it is not that kind of question."""
        wanted = ("from", "to") if self.what == "diff" else ("at",)
        pairs = parse_qsl(self.scope["query_string"].decode("latin-1"), keep_blank_values=True)
        found = [value for name, value in pairs if name in wanted]
        return found if len(found) == len(wanted) else []


class ApartLayer:
    """Puts questions about what is settled to `process`, and all others to `app`."""

    def __init__(self, app: ASGIApp, *, library: Library, audits: Audits, process: OwnProcess) -> None:
        self._app = app
        self._library = library
        self._audits = audits
        self._process = process

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        question = _question(scope)
        if question is None:
            await self._app(scope, receive, send)
            return
        self._process.begin()
        body = _Body(receive)
        if scope["method"] == "POST" and question.what in BODIES:
            await body.read()
        if self._goes_there(question, body):
            try:
                answered = await self._process.ask(_told(scope), body.content)
            except ProcessGone:
                pass
            else:
                await _send(answered, send)
                return
        await self._app(scope, body.again, send)

    def _goes_there(self, question: _Question, body: "_Body") -> bool:
        if not body.is_whole:
            return False
        if question.is_audit:
            # Where one had to be run here, all of them are here: a list must not be in two places.
            return not self._audits.begun
        if question.scope["method"] == "POST":
            return question.what == "explain" and self._is_settled(question, _seqs_in(body.content))
        first = question.what.partition("/")[0]
        if first in STORED or _HISTORY.fullmatch(question.what):
            return self._process.phase == "up" and question.what != STREAM
        return first in STATES and self._is_settled(question, question.seqs())

    def _is_settled(self, question: _Question, seqs: Iterable[str]) -> bool:
        """Whether there are seqs, and more is stored behind each of them, as far as is known here."""
        asked = [int(seq) if _SEQ.fullmatch(seq) else SEQ_MAX for seq in seqs]
        if not asked:
            return False
        try:
            opened = self._library.opened_before(question.journal)
        except (JournalError, Refusal):
            return False
        if opened is None or opened.timeline.has_failed:
            return False
        return max(asked) < opened.timeline.heard_seq


class _Body:
    """The body of a request, read once here and to be read again further in."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._messages: list[Message] = []
        self._refused: HTTPException | None = None
        self.content = b""
        self.is_whole = True
        """Not where it was too large, or its sender is gone."""

    async def read(self) -> None:
        """Read all of it; its size was bounded further out."""
        more = True
        try:
            while more:
                message = await self._receive()
                self._messages.append(message)
                self.is_whole = message["type"] == "http.request"
                more = self.is_whole and message.get("more_body", False)
        except HTTPException as error:
            self._refused, self.is_whole = error, False
        self.content = b"".join(message.get("body", b"") for message in self._messages)

    async def again(self) -> Message:
        """What `receive` gave, once more, and then what it gives further."""
        if self._messages:
            return self._messages.pop(0)
        if self._refused is not None:
            raise self._refused
        return await self._receive()


def _question(scope: Scope) -> _Question | None:
    """What a request asks of a journal; None for all that asks of none."""
    if scope["type"] != "http" or scope["method"] not in ("GET", "POST"):
        return None
    found = _OF_A_JOURNAL.fullmatch(scope["path"])
    return None if found is None else _Question(scope, int(found[1]), found[2])


def _seqs_in(body: bytes) -> list[str]:
    """The seq that the body of an `explain` names, found without reading its tokens.

    Inside a text of JSON a quotation mark is escaped, so that what looks like a member is one.
    """
    if body.count(b'"at"') != 1:
        return []
    found = _AT.search(body)
    return [] if found is None else [found[1].decode()]


def _told(scope: Scope) -> dict[str, object]:
    headers = Headers(scope=scope)
    passed_on = [(name, value) for name in PASSED_ON for value in headers.getlist(name)]
    raw = scope.get("raw_path") or scope["path"].encode()
    return {
        "method": scope["method"],
        "path": scope["path"],
        "raw_path": raw.decode("latin-1"),
        "query": scope["query_string"].decode("latin-1"),
        "headers": passed_on,
    }


async def _send(answered: Answered, send: Send) -> None:
    await send({"type": "http.response.start", "status": answered.status, "headers": answered.headers})
    await send({"type": "http.response.body", "body": answered.body})
