"""The page: its document at `/`, what belongs to it below /static, from the package, with entity tags."""

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.staticfiles import StaticFiles

router = APIRouter(include_in_schema=False)

PAGE = "index.html"


def static_files() -> StaticFiles:
    """The files of the page, wherever the package is installed."""
    return StaticFiles(packages=[("kvledger.api", "static")])


@router.get("/")
async def page(request: Request) -> Response:
    """The page that looks at a journal."""
    files: StaticFiles = request.app.state.static_files
    return await files.get_response(PAGE, request.scope)
