"""Commands whose answers need packages that are not always installed: they say what to install."""

from collections.abc import Iterator
from contextlib import contextmanager

from kvledger.core.errors import InvalidArgument

SENTENCE = "{} needs more packages: pip install 'kvledger[{}]' ({} is missing)"

EXTRAS = {
    "fastapi": "api",
    "limits": "api",
    "prometheus_client": "api",
    "pydantic_settings": "api",
    "sse_starlette": "api",
    "uvicorn": "api",
    "transformers": "engine",
    "pyarrow": "parquet",
    "psycopg": "postgres",
    "cryptography": "sign",
}
"""What is imported, and the extra of pyproject.toml that brings it."""


def what_is_missing(error: ModuleNotFoundError) -> str | None:
    """The sentence for a package of an extra that cannot be imported; None where no extra brings it."""
    package = (error.name or "").partition(".")[0]
    return SENTENCE.format("this", EXTRAS[package], package) if package in EXTRAS else None


@contextmanager
def needs_api(what: str) -> Iterator[None]:
    """Around imports that `what` needs of the extra `api`. Raises InvalidArgument where one is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "kvledger":
            raise
        raise InvalidArgument(SENTENCE.format(what, "api", error.name)) from error
