"""Old events in new readers: how a payload of an earlier version becomes one of the next.

Every kind of event has a version. When the stored fields of a kind change, its version rises by one and an
upcaster from the version before is registered here; a reader then takes an old event through the whole
chain. What is stored never changes: the chain of hashes is over the bytes as they were written.

    @UPCASTERS.register("pages_freed", from_version=1)
    def _cause_was_implied(stored: StoredPayload) -> StoredPayload:
        return StoredPayload({**stored.fields, "cause": "caller"}, stored.blob)

A gap in a chain is an error at import, not on the day somebody opens an old journal. Journals of every
released format stand in tests/fixtures/ and replay for ever.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kvledger.core.errors import JournalFormatError
from kvledger.core.events import EVENTS

FIRST_VERSION = 1


class StoredPayload(NamedTuple):
    """An event as it was stored: the payload's JSON fields, and the blob their directory entries speak of."""

    fields: dict[str, Any]
    blob: bytes


Upcaster = Callable[[StoredPayload], StoredPayload]
"""From one version of a kind to the next; raises JournalFormatError for what that version cannot hold."""


class Upcasters:
    """The upcasters of all kinds, each from one version to the next."""

    def __init__(self) -> None:
        self._steps: dict[tuple[str, int], Upcaster] = {}

    def register(self, kind: str, *, from_version: int) -> Callable[[Upcaster], Upcaster]:
        """Decorate the step of `kind` from `from_version` on. JournalFormatError if there is one already."""

        def keep(step: Upcaster) -> Upcaster:
            if (kind, from_version) in self._steps:
                raise JournalFormatError(f"{kind} has two upcasters from version {from_version}")
            self._steps[kind, from_version] = step
            return step

        return keep

    def check(self, versions: Mapping[str, int]) -> None:
        """Raise JournalFormatError unless each kind has a step from every version before its current one."""
        needed = {
            (kind, version) for kind, current in versions.items() for version in range(FIRST_VERSION, current)
        }
        missing = sorted(needed - self._steps.keys())
        if missing:
            kind, version = missing[0]
            raise JournalFormatError(
                f"{kind} events are of version {versions[kind]}, and none says how one of version {version} "
                f"becomes one of version {version + 1}"
            )
        surplus = sorted(self._steps.keys() - needed)
        if surplus:
            kind, version = surplus[0]
            raise JournalFormatError(
                f"an upcaster takes {kind} events from version {version}, which is no earlier version of it"
            )

    def upcast(self, kind: str, version: int, *, to: int, stored: StoredPayload) -> StoredPayload:
        """Take an event of `version` through every step up to version `to`.

        Raises JournalFormatError for a version that never was or is newer than `to`, or fields that `version`
        did not have. Cost: that of the steps.
        """
        if type(version) is not int or version < FIRST_VERSION:
            raise JournalFormatError(f"{kind} events never had a version {version!r}")
        if version > to:
            raise JournalFormatError(
                f"a {kind} event is of version {version}, newer than version {to}, the newest known here: "
                f"read it with the kvledger that wrote it, or a later one"
            )
        try:
            for at in range(version, to):
                stored = self._steps[kind, at](stored)
        except (LookupError, TypeError, ValueError) as error:
            raise JournalFormatError(
                f"a {kind} event is not what version {version} of it holds: {error!r}"
            ) from error
        return stored


UPCASTERS = Upcasters()
"""Those of the vocabulary."""

UPCASTERS.check({kind: vars(event_class)["version"] for kind, event_class in EVENTS.items()})
