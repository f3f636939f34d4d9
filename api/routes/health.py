"""Whether the process is up, and whether it can answer."""

import time
from typing import Literal

from fastapi import APIRouter, Request

from kvledger.api.apart import OwnProcess
from kvledger.api.problems import unavailable
from kvledger.api.routes.dependencies import LibraryDep
from kvledger.api.schemas.common import Answer

router = APIRouter(tags=["health"])

LOADING_SECONDS = 1
"""When to ask again while journals are loaded."""

PATIENCE_SECONDS = 0.5
"""So long a probe waits for what loads in a moment, as a journal does that has just begun; most probes wait a
second themselves."""


class Health(Answer):
    """That a probe was answered."""

    status: str = "ok"


class Ready(Health):
    """That the service can answer, and where questions about the past are answered.

    `here`: in this process. Beside a scheduler they have a process of their own, which is `idle` until
    somebody looks, then `starting`, then `up`; `gone` where it could not start or has died: then they are
    answered here too, and `own_process_problem` says what is known.
    """

    own_process: Literal["here", "idle", "starting", "up", "gone"] = "here"
    own_process_problem: str | None = None


@router.get("/healthz")
def healthz() -> Health:
    """The process is up. Needs no token and touches no database."""
    return Health()


@router.get("/readyz")
def readyz(request: Request, library: LibraryDep) -> Ready:
    """Every journal that is followed is loaded, and the database answers.

    From then on the newest state of each is at hand. Before that it can be asked for too, and is found from a
    checkpoint. A journal in which nothing is recorded is loaded: there is no state, but nothing is amiss.
    """
    library.journals()
    until = time.monotonic() + PATIENCE_SECONDS
    loading = [
        opened.id
        for opened in library.followed()
        if not opened.timeline.wait_loaded(max(0.0, until - time.monotonic()))
    ]
    if loading:
        which = ", ".join(map(str, loading))
        raise unavailable(f"still loading: journal {which}", retry_after_s=LOADING_SECONDS)
    process: OwnProcess | None = request.app.state.process
    if process is None:
        return Ready()
    return Ready(own_process=process.phase, own_process_problem=process.problem)
