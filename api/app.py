"""The application: routes, limits and headers put around one library. Nothing is built at import.

Layers, from the outside in: HEAD, headers that every answer carries, room for the connection, the host's name
and the token, sizes, the rate, what a process of its own answers, compression, and the routes. What an outer
layer refuses no inner one sees.
"""

import importlib
import logging
import pkgutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRouter
from starlette.concurrency import run_in_threadpool

from kvledger import __version__
from kvledger.api import routes
from kvledger.api.access import AccessLayer, check_exposure
from kvledger.api.apart import ApartLayer, OwnProcess
from kvledger.api.audits import Audits
from kvledger.api.compression import CompressionLayer
from kvledger.api.etags import install_etags
from kvledger.api.headers import HeaderLayer
from kvledger.api.heads import HeadLayer
from kvledger.api.library import Library
from kvledger.api.limits import RateLayer, SizeLayer
from kvledger.api.metrics import Metrics
from kvledger.api.problems import Refusal, install_problems
from kvledger.api.room import Room, RoomLayer
from kvledger.api.routes.dependencies import EVERYWHERE
from kvledger.api.routes.page import static_files
from kvledger.api.schemas.common import Problem
from kvledger.api.settings import ApiSettings
from kvledger.api.streams import Streams
from kvledger.core.errors import JournalError

log = logging.getLogger("kvledger.api")

FIRST_ROUTES = ("stream",)
"""Files of routes whose addresses an address of another file would take for a number."""


def create_app(settings: ApiSettings, library: Library, *, process: OwnProcess | None = None) -> FastAPI:
    """The service over `library`. It follows journals from the app's start to its end.

    Questions about the past go to `process` where there is one, which ends with the app. Raises TokenRequired
    where others than this machine could reach it and there is no token.
    """
    check_exposure(settings)
    audits = Audits(library, waiting=settings.audits_waiting, kept=settings.audits_kept)

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        try:
            await run_in_threadpool(library.start)
        except (JournalError, Refusal) as error:
            # The database may come back; until then every route says what is wrong.
            log.warning("no journal is followed yet: %s", error)
        yield
        if process is not None:
            await process.close()
        await run_in_threadpool(audits.close)
        await run_in_threadpool(library.close)

    app = FastAPI(
        title="kvledger",
        version=__version__,
        lifespan=life,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses=EVERYWHERE,
    )
    app.state.library = library
    app.state.settings = settings
    app.state.static_files = static_files()
    app.state.audits = audits
    app.state.room = Room()
    app.state.streams = Streams(limit=settings.streams)
    app.state.process = process
    app.state.metrics = Metrics(library, app.state.streams, process=process)
    install_problems(app)
    install_etags(app)
    for router in _routers():
        app.include_router(router)
    app.mount("/static", app.state.static_files, name="static")
    _document(app, guarded=settings.token is not None)
    # The one added last is the outermost.
    app.add_middleware(CompressionLayer)
    if process is not None:
        app.add_middleware(ApartLayer, library=library, audits=audits, process=process)
    app.add_middleware(RateLayer, settings=settings)
    app.add_middleware(SizeLayer, settings=settings)
    app.add_middleware(AccessLayer, settings=settings)
    app.add_middleware(RoomLayer, room=app.state.room)
    app.add_middleware(HeaderLayer)
    app.add_middleware(HeadLayer)
    return app


def _routers() -> list[APIRouter]:
    """The router of every file of routes that has one."""
    names = sorted(module.name for module in pkgutil.iter_modules(routes.__path__))
    found = []
    for name in sorted(names, key=lambda name: name not in FIRST_ROUTES):
        router = getattr(importlib.import_module(f"{routes.__name__}.{name}"), "router", None)
        if isinstance(router, APIRouter):
            found.append(router)
    return found


def _document(app: FastAPI, *, guarded: bool) -> None:
    """Let the OpenAPI document know the schema of refusals, which no route's model names, and the token."""
    made = app.openapi

    def openapi() -> dict[str, Any]:
        document = made()
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        schemas.setdefault("Problem", Problem.model_json_schema())
        if guarded:
            document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
            document["security"] = [{"token": []}]
        return document

    app.openapi = openapi  # type: ignore[method-assign]
