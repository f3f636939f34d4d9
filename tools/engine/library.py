"""Whether transformers is there, and is a version that was tested: for the engine and for the embedding.

Loads nothing of it: a command may ask before it spends seconds on an import.
"""

from importlib.metadata import PackageNotFoundError, version

from kvledger.core.errors import InvalidArgument

TESTED_VERSIONS = "5.24.x"
"""Between minor versions the names that models give their cache arguments have changed, and so has the inside
of the scheduler that the embedding relies on."""

_TESTED = ("5", "24")


class UnsupportedSetup(InvalidArgument):
    """A version, model or configuration that does not go with the pools; nothing was changed."""


def require_transformers() -> None:
    """Raise UnsupportedSetup, with what to install, unless a tested version of transformers is there."""
    try:
        found = version("transformers")
    except PackageNotFoundError:
        raise UnsupportedSetup(
            f"transformers is not installed: pip install 'kvledger[engine]' brings {TESTED_VERSIONS}"
        ) from None
    if tuple(found.split(".")[:2]) != _TESTED:
        raise UnsupportedSetup(
            f"transformers {found} is installed, tested is {TESTED_VERSIONS} only: "
            "pip install 'kvledger[engine]'"
        )
