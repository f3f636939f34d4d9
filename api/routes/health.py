"""Whether the process is up, and whether it can answer."""

from fastapi import APIRouter

from kvledger.api.problems import unavailable
from kvledger.api.routes.dependencies import LibraryDep
from kvledger.api.schemas.common import Answer

router = APIRouter(tags=["health"])

LOADING_SECONDS = 1
"""When to ask again while journals are loaded."""


class Health(Answer):
    """That a probe was answered."""

    status: str = "ok"


@router.get("/healthz")
def healthz() -> Health:
    """The process is up. Needs no token and touches no database."""
    return Health()


@router.get("/readyz")
def readyz(library: LibraryDep) -> Health:
    """Every journal that is followed is loaded, and the database answers."""
    library.journals()
    loading = [opened.id for opened in library.followed() if opened.timeline.following.state == "loading"]
    if loading:
        which = ", ".join(map(str, loading))
        raise unavailable(f"still loading: journal {which}", retry_after_s=LOADING_SECONDS)
    return Health()
