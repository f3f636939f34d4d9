"""Compression of answers: gzip for whoever takes it and does not like the plain answer better.

Starlette's middleware compresses where the word gzip stands in Accept-Encoding, also in `gzip;q=0`, which
refuses it. So the header is read here as RFC 9110 (12.5.3) has it, and what lies further in, which is that
middleware and the tags of answers (etags.py), sees `gzip` or `identity` and nothing else. Who takes neither
gets the plain answer: everybody can read it.
"""

import re

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

COMPRESSED_BYTES = 1_024
"""An answer that fits a packet is not worth compressing."""

COMPRESSION = 5
"""JSON of runs shrinks nearly as far as at 9, at a third of the time."""

GZIP_NAMES = frozenset({"gzip", "x-gzip"})

_WEIGHT = re.compile(r"\s*[qQ]\s*=\s*(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)\s*")


class CompressionLayer:
    """Compresses answers of `app` for readers who want that."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = GZipMiddleware(app, minimum_size=COMPRESSED_BYTES, compresslevel=COMPRESSION)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            wanted = "gzip" if wants_gzip(Headers(scope=scope).getlist("accept-encoding")) else "identity"
            # A copy: what was asked for stays as it is for the layers further out.
            scope = {**scope}
            MutableHeaders(scope=scope)["accept-encoding"] = wanted
        await self._app(scope, receive, send)


def wants_gzip(accepted: list[str]) -> bool:
    """Whether these Accept-Encoding lines like gzip as well as the plain answer. No line asks for nothing.

    A weight that is none is read as 0: what it was to say is unknown, and the plain answer is always right.
    """
    weights: dict[str, float] = {}
    for coding in ",".join(accepted).split(","):
        name, _, weight = coding.partition(";")
        weights[name.strip().lower()] = _weight(weight)
    gzip = max((weights[name] for name in GZIP_NAMES if name in weights), default=weights.get("*", 0.0))
    # Not named, the plain answer is welcome, but less than all that is: to name another is to ask for it.
    return gzip > 0 and gzip >= weights.get("identity", 0.0)


def _weight(text: str) -> float:
    if not text.strip():
        return 1.0
    found = _WEIGHT.fullmatch(text)
    return 0.0 if found is None else float(found[1])
