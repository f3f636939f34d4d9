"""Commands whose answers need packages that are not always installed: they say what to install."""

from collections.abc import Iterator
from contextlib import contextmanager

from kvledger.core.errors import InvalidArgument

SENTENCE = "{} needs more packages: pip install 'kvledger[api]' ({} is missing)"


@contextmanager
def needs_api(what: str) -> Iterator[None]:
    """Around imports that `what` needs of the extra `api`. Raises InvalidArgument where one is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "kvledger":
            raise
        raise InvalidArgument(SENTENCE.format(what, error.name)) from error
