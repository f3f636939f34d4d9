"""Answers that can never change: a state at a past seq is sent once and then kept by whoever asked.

`immutable` is called by a route as soon as it knows which seq its answer stands at, before it computes
anything: a reader that has that answer already gets 304 and nothing is computed. The tag covers all that the
answer depends on. Everything else is revalidated each time.
"""

from hashlib import blake2b

from fastapi import FastAPI, Request
from fastapi.responses import Response

from kvledger import __version__
from kvledger.api.library import Library, OpenedJournal

KEEP = "private, max-age=31536000, immutable"
REVALIDATE = "no-cache"
TAG = "kvledger_etag"
"""Where a route leaves its tag for headers.py, in the request's state."""


class NotModified(Exception):
    """The reader has this answer: 304."""

    def __init__(self, tag: str) -> None:
        super().__init__(tag)
        self.tag = tag


def immutable(request: Request, opened: OpenedJournal, seq: int) -> None:
    """Say that the answer to `request` is that of `seq` for ever. Raises NotModified to who has it."""
    library: Library = request.app.state.library
    query = sorted((name, value) for name, value in request.query_params.multi_items())
    encoded = "gzip" in request.headers.get("accept-encoding", "")
    parts = (opened.info.epoch, seq, request.url.path, query, library.hide.mark, __version__, encoded)
    tag = f'"{blake2b(repr(parts).encode(errors="surrogatepass"), digest_size=16).hexdigest()}"'
    if has_tag(request.headers.get("if-none-match", ""), tag):
        raise NotModified(tag)
    setattr(request.state, TAG, tag)


def has_tag(if_none_match: str, tag: str) -> bool:
    """Whether a header names `tag`, or any."""
    named = [one.strip().removeprefix("W/") for one in if_none_match.split(",")]
    return tag in named or "*" in named


def install_etags(app: FastAPI) -> None:
    """Answer 304 where a route finds that its reader has the answer."""

    def not_modified(request: Request, error: Exception) -> Response:
        tag = error.tag if isinstance(error, NotModified) else ""
        return Response(status_code=304, headers={"ETag": tag, "Cache-Control": KEEP})

    app.add_exception_handler(NotModified, not_modified)
