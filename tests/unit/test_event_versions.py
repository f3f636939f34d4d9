"""Old versions of events are read through upcasters, newer ones are refused, gaps show at import."""

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from kvledger.core.errors import JournalFormatError
from kvledger.core.events import EVENTS
from kvledger.journal import codec
from kvledger.journal.codec import decode, encode
from kvledger.journal.versions import UPCASTERS, StoredPayload, Upcasters
from tests.support.stored_events import allocated


def add_unit(stored: StoredPayload) -> StoredPayload:
    return StoredPayload({**stored.fields, "unit": "page"}, stored.blob)


def rename_amount(stored: StoredPayload) -> StoredPayload:
    fields = dict(stored.fields)
    fields["count"] = fields.pop("amount")
    return StoredPayload(fields, stored.blob)


def chain() -> Upcasters:
    made = Upcasters()
    made.register("planted", from_version=1)(rename_amount)
    made.register("planted", from_version=2)(add_unit)
    return made


@pytest.mark.parametrize(
    ("version", "fields"),
    [(1, {"amount": 4}), (2, {"count": 4}), (3, {"count": 4, "unit": "page"})],
)
def test_each_version_becomes_the_current_one(version: int, fields: dict[str, Any]) -> None:
    made = chain().upcast("planted", version, to=3, stored=StoredPayload(fields, b"x"))
    assert made == StoredPayload({"count": 4, "unit": "page"}, b"x")


@pytest.mark.parametrize("version", [4, 0, -1, True, None, "1"])
def test_a_version_that_is_newer_or_never_was_is_refused(version: Any) -> None:
    with pytest.raises(JournalFormatError, match="version"):
        chain().upcast("planted", version, to=3, stored=StoredPayload({}, b""))


def test_what_an_old_version_cannot_have_held_is_refused() -> None:
    with pytest.raises(JournalFormatError, match="not what version 1 of it holds"):
        chain().upcast("planted", 1, to=3, stored=StoredPayload({"other": 1}, b""))


@pytest.mark.parametrize(
    ("versions", "sentence"),
    [
        ({"planted": 4}, "one of version 3 becomes one of version 4"),
        ({"planted": 3, "other": 2}, "one of version 1 becomes one of version 2"),
        ({"planted": 2}, "from version 2, which is no earlier version"),
        ({}, "no earlier version"),
    ],
    ids=["gap at the end", "none at all", "surplus", "unknown kind"],
)
def test_a_gap_or_a_surplus_in_a_chain_is_an_error(versions: dict[str, int], sentence: str) -> None:
    with pytest.raises(JournalFormatError, match=sentence):
        chain().check(versions)


def test_a_gap_in_the_middle_of_a_chain_is_an_error() -> None:
    made = Upcasters()
    made.register("planted", from_version=1)(rename_amount)
    made.register("planted", from_version=3)(add_unit)
    with pytest.raises(JournalFormatError, match="one of version 2 becomes one of version 3"):
        made.check({"planted": 4})


def test_two_upcasters_of_one_step_are_an_error() -> None:
    with pytest.raises(JournalFormatError, match="two upcasters"):
        chain().register("planted", from_version=1)(add_unit)


def test_the_chains_of_the_vocabulary_have_no_gap() -> None:
    UPCASTERS.check({kind: vars(event_class)["version"] for kind, event_class in EVENTS.items()})


def test_an_event_of_an_earlier_version_decodes_as_one_of_today(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(slots=True, eq=False)
    class Planted:
        kind: ClassVar[str] = "planted"
        version: ClassVar[int] = 2
        count: int
        unit: str

    upcasters = Upcasters()
    upcasters.register("planted", from_version=1)(add_unit)
    upcasters.check({"planted": 2})
    monkeypatch.setattr(codec, "UPCASTERS", upcasters)
    monkeypatch.setitem(codec._PLANS, "planted", codec._Plan(Planted))
    old: Any = decode("planted", 1, '{"count":4}', b"")
    new: Any = decode("planted", 2, '{"count":4,"unit":"token"}', b"")
    assert [(old.count, old.unit), (new.count, new.unit)] == [(4, "page"), (4, "token")]
    with pytest.raises(JournalFormatError, match="newer than version 2"):
        decode("planted", 3, '{"count":4}', b"")


def test_an_event_of_a_newer_version_is_refused() -> None:
    stored = encode(allocated("r1", 1))
    with pytest.raises(JournalFormatError, match="newer than version 1"):
        decode(stored.kind, 2, stored.payload, stored.blob)
