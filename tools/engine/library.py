"""Whether transformers is there, and is a version that the engine was tested with.

Loads nothing of it: a command may ask before it spends seconds on an import.
"""

from importlib.metadata import PackageNotFoundError, version

from kvledger.core.errors import InvalidArgument

TESTED = (5, 24)
"""Major and minor version. The names that models give their cache arguments have changed between minors."""


def require_transformers() -> None:
    """Raise InvalidArgument, with what to install, unless a tested version of transformers is there."""
    wanted = ".".join(map(str, TESTED))
    try:
        found = version("transformers")
    except PackageNotFoundError:
        raise InvalidArgument(
            f"running a model needs transformers {wanted}: pip install 'kvledger[engine]'"
        ) from None
    if found.split(".")[:2] != list(map(str, TESTED)):
        raise InvalidArgument(
            f"transformers {found} is here, tested is {wanted}: pip install 'kvledger[engine]'"
        )
