"""What differs between two states, bounded and in words."""

from collections.abc import Callable
from typing import Any

from kvledger.api.projection import Standing
from kvledger.api.schemas.tree import Change, Changed, Differences, DiffOut
from kvledger.api.told.events import told_text
from kvledger.journal.difference import Change as FieldChange
from kvledger.journal.difference import Parts, difference

PARTS_SHOWN = 500
"""Nodes, requests or leases named in each list of one answer."""

VALUE_CHARACTERS = 200
"""Of a value, which may be a list of pages, so much is told."""


def difference_of(before: Standing, after: Standing) -> DiffOut:
    """What is not in `after` as it was in `before`. Cost: O(both states)."""
    found = difference(before.state, after.state)
    return DiffOut(
        before=before.at,
        after=after.at,
        nodes=_parts(found.nodes, str),
        requests=_parts(found.requests, told_text),
        leases=_parts(found.leases, str),
        pools=tuple(_change(change) for change in found.pools),
    )


def _parts(parts: Parts[Any], name: Callable[[Any], str]) -> Differences:
    changed = [
        Changed(id=name(key), changes=tuple(_change(change) for change in parts.changed[key]))
        for key in sorted(parts.changed)[:PARTS_SHOWN]
    ]
    return Differences(
        added=tuple(name(key) for key in sorted(parts.added)[:PARTS_SHOWN]),
        added_total=len(parts.added),
        removed=tuple(name(key) for key in sorted(parts.removed)[:PARTS_SHOWN]),
        removed_total=len(parts.removed),
        changed=tuple(changed),
        changed_total=len(parts.changed),
    )


def _change(change: FieldChange) -> Change:
    return Change(field=change.field, before=_words(change.before), after=_words(change.after))


def _words(value: Any) -> str:
    text = " ".join(map(str, value)) if isinstance(value, tuple) else "none" if value is None else str(value)
    return text if len(text) <= VALUE_CHARACTERS else text[:VALUE_CHARACTERS] + "..."
