"""Who may ask: the address it listens on, the name it is called by, the token, and where a page comes from.

A service that others than this machine can reach has a token, or it is not started. With a token every
address but /healthz wants it, compared in constant time. A browser, which cannot put a header on a page or an
event stream, gives it once as `/?token=...`: it gets a cookie that is derived from the token, and an address
without it. A service on loopback answers only to loopback's names, because a site whose name was pointed here
after its page was loaded (DNS rebinding) would pass for it. No site but this one may send anything that is no
plain read.
"""

import hashlib
import hmac
import ipaddress
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from kvledger.api.problems import Refusal, problem_response
from kvledger.api.settings import ApiSettings, check_token
from kvledger.core.errors import InvalidArgument

COOKIE = "kvledger_token"
OPEN_PATHS = frozenset({"/healthz"})
"""What answers without a token: that the process is up, and nothing else."""

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class TokenRequired(InvalidArgument):
    """A service that others can reach was to be started without a token."""


def check_exposure(settings: ApiSettings) -> None:
    """Raise TokenRequired where others than this machine could reach a service that asks for no token.

    InvalidArgument for a token that could be guessed.
    """
    if settings.token is not None:
        check_token(settings.token)
    elif not is_loopback(settings.host):
        raise TokenRequired(
            f"{settings.host!r} is not a loopback address: who can reach it could read everything; set "
            f"KVLEDGER_TOKEN or --token-file, or listen on 127.0.0.1"
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`. A name other than localhost is not resolved: it is not."""
    name = host.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


class AccessLayer:
    """Lets a request through to `app`, or refuses it with 400, 401 or 403."""

    def __init__(self, app: ASGIApp, *, settings: ApiSettings) -> None:
        self._app = app
        self._names = frozenset(name.lower() for name in settings.allowed_hosts)
        self._loopback_only = is_loopback(settings.host)
        token = settings.token
        self._token = None if token is None else token.get_secret_value().encode()
        # Who steals the cookie has not the token; both open the same doors until the token is changed.
        self._pass = hmac.new(self._token or b"", b"kvledger page", hashlib.sha256).hexdigest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = self._answer(scope, Headers(scope=scope))
        await (self._app if answer is None else answer)(scope, receive, send)

    def _answer(self, scope: Scope, headers: Headers) -> Response | None:
        """What is sent instead of passing the request on; None where it may pass."""
        host = headers.get("host", "")
        if self._loopback_only and not self._is_ours(host):
            return problem_response(
                Refusal(
                    400,
                    title="Wrong host",
                    detail="this service answers to localhost and loopback addresses only; another name "
                    "has to be among its allowed_hosts",
                )
            )
        refused = self._without_token(scope, headers)
        if refused is not None:
            return refused
        origin = headers.get("origin")
        if scope["method"] not in SAFE_METHODS and origin is not None and _site(origin) != host:
            return problem_response(
                Refusal(
                    403, title="Another site", detail="a page of another site may not start anything here"
                )
            )
        return None

    def _is_ours(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        return is_loopback(name) or name in self._names

    def _without_token(self, scope: Scope, headers: Headers) -> Response | None:
        if self._token is None or scope["path"] in OPEN_PATHS:
            return None
        if scope["path"] == "/" and scope["method"] == "GET" and b"token=" in scope["query_string"]:
            given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])
            if self._is_token(given[0]):
                return self._welcome(scope)
            return _unauthorized("the token in the address is not the one of this service")
        scheme, _, given_token = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            if self._is_token(given_token.strip()):
                return None
            return _unauthorized("the token is not the one of this service")
        if self._has_pass(headers.getlist("cookie")):
            return None
        return _unauthorized(
            "this service wants its token: `Authorization: Bearer TOKEN`, or open /?token=TOKEN in a browser"
        )

    def _is_token(self, given: str) -> bool:
        return self._token is not None and hmac.compare_digest(given.encode(errors="replace"), self._token)

    def _has_pass(self, cookies: list[str]) -> bool:
        for header in cookies:
            try:
                found = SimpleCookie(header).get(COOKIE)
            except CookieError:
                continue
            if found is not None and hmac.compare_digest(found.value.encode(), self._pass.encode()):
                return True
        return False

    def _welcome(self, scope: Scope) -> Response:
        """The page's address without the token, and the cookie that stands for it."""
        response = RedirectResponse("/", status_code=303, headers={"Cache-Control": "no-store"})
        response.set_cookie(
            COOKIE, self._pass, path="/", httponly=True, samesite="strict", secure=scope["scheme"] == "https"
        )
        return response


def _site(origin: str) -> str | None:
    """Name and port in an Origin header; None where it is no address at all."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _unauthorized(detail: str) -> Response:
    return problem_response(
        Refusal(
            401,
            title="Token needed",
            detail=detail,
            headers={"WWW-Authenticate": 'Bearer realm="kvledger"'},
        )
    )
