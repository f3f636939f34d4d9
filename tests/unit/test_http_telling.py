"""Events as the service tells them: every fact, a sentence, and nothing that is hidden."""

import dataclasses
import json
from importlib import resources
from typing import Any

import numpy as np
import pytest

from kvledger.api.schemas.common import Runs
from kvledger.api.schemas.payloads import PAYLOADS, UNTOLD
from kvledger.api.told.events import Teller, told_text
from kvledger.api.told.hiding import SUMS_SHOWN, TOKENS_SHOWN, Hiding
from kvledger.api.told.runs import RUNS_SHOWN, read_runs, runs_of
from kvledger.core.events import EVENTS, Origin, RolledBack
from kvledger.core.ids import Seq, TxnId
from kvledger.journal import FoundEvent
from tests.support.payload_examples import examples, recorded_events

SHOWN = Teller(Hiding(reveals=True), policy="full", page_size=4)
HIDDEN = Teller(Hiding(reveals=False), policy="full", page_size=4)


def found(event: Any) -> FoundEvent:
    return FoundEvent(Seq(5), False, event, TxnId(2), "commit", 1_000)


def runs(*pairs: tuple[int, int], total: int, omitted: int = 0) -> Runs:
    return Runs(total=total, runs=pairs, omitted=omitted)


@pytest.mark.parametrize(
    ("numbers", "told"),
    [
        ([], runs(total=0)),
        ([7], runs((7, 1), total=1)),
        ([3, 4, 5], runs((3, 3), total=3)),
        ([5, 4, 3], runs((5, 1), (4, 1), (3, 1), total=3)),
        ([1, 2, 9, 10, 4], runs((1, 2), (9, 2), (4, 1), total=5)),
        ([0, 0, 1], runs((0, 1), (0, 2), total=3)),
    ],
)
def test_numbers_are_told_as_runs_in_their_order(numbers: list[int], told: Runs) -> None:
    assert runs_of(np.array(numbers, np.int64)) == told
    assert runs_of(np.array(numbers, np.int32)) == told


def test_no_run_of_pages_wraps_round() -> None:
    last = 2**31 - 1
    assert runs_of(np.array([last - 1, last, -last - 1], np.int32)) == runs(
        (last - 1, 2), (-last - 1, 1), total=3
    )


def test_runs_beyond_the_limit_are_counted_and_left_out() -> None:
    numbers = np.arange(0, 3 * RUNS_SHOWN, 2, dtype=np.int32)
    told = runs_of(numbers)
    assert (told.total, len(told.runs), told.omitted) == (len(numbers), RUNS_SHOWN, len(numbers) - RUNS_SHOWN)


def test_a_sentence_names_the_first_runs_and_counts_the_rest() -> None:
    assert read_runs(np.array([7], np.int32)) == "7"
    assert read_runs(np.arange(3, 10, dtype=np.int32)) == "3-9"
    assert read_runs(np.array([1, 2, 5, 8, 9, 12, 13], np.int32)) == "1-2, 5, 8-9 and 2 more"


@pytest.mark.parametrize("kind", EVENTS)
def test_every_kind_has_a_recorded_example_that_fits_its_payload(kind: str) -> None:
    stored = json.loads(
        (resources.files("kvledger.api.schemas") / "payload_examples.json").read_text(encoding="utf-8")
    )
    assert PAYLOADS[kind].model_validate(stored[kind], strict=False).model_dump(mode="json") == stored[kind]


def test_the_examples_are_what_the_recorded_run_gives() -> None:
    stored = json.loads(
        (resources.files("kvledger.api.schemas") / "payload_examples.json").read_text(encoding="utf-8")
    )
    made = examples()
    for kind in EVENTS.keys() - {"checkpoint"}:
        recorded: Any = made[kind]
        assert recorded.keys() == stored[kind].keys()
        for name in recorded.keys() - {"namespace"}:
            assert recorded[name] == stored[kind][name], (kind, name)


def test_a_payload_has_every_field_of_its_event() -> None:
    for kind, event_class in EVENTS.items():
        fields = {field.name for field in dataclasses.fields(event_class)}
        assert set(PAYLOADS[kind].model_fields) == fields - UNTOLD | {"kind"}


def test_every_recorded_event_is_told_with_a_sentence_and_all_of_its_facts() -> None:
    kinds = set()
    for event in recorded_events():
        told = HIDDEN.event(found(event))
        assert told.sentence[0].islower() or told.sentence[0].isdigit()
        assert not told.sentence.endswith((".", " "))
        assert len(told.sentence) < 400
        kinds.add(event.kind)
        for field in dataclasses.fields(event):
            value: Any = getattr(event, field.name)
            shown: Any = getattr(told.data, field.name, None)
            if isinstance(value, np.ndarray) and value.dtype == np.uint64:
                assert (shown.count, shown.sums) == (len(value), None)
            elif isinstance(value, np.ndarray):
                assert shown.total == len(value)
                assert [
                    n for first, count in shown.runs for n in range(first, first + count)
                ] == value.tolist()
            elif isinstance(value, Origin):
                assert (shown.request, shown.epoch) == (value.request_id, value.epoch)
            elif field.name not in {"namespace", "tokens", "head_tokens", "reason"}:
                assert shown == value, field.name
    assert len(kinds) >= len(EVENTS) - 2


def test_a_namespace_is_a_stable_label_that_only_this_process_gives() -> None:
    hide, other = Hiding(reveals=False), Hiding(reveals=False)
    label = hide.namespace("tenant")
    assert label == hide.namespace("tenant") != hide.namespace("tenant2")
    assert label.startswith("ns-")
    assert len(label) == 15
    assert other.namespace("tenant") != label
    assert hide.namespace("") == ""
    assert Hiding(reveals=True).namespace("tenant") == "tenant"
    assert hide.mark != other.mark


def test_a_hint_to_install_an_extra_is_told_and_nothing_else_that_may_stand_there() -> None:
    hint = "signing needs the package cryptography: pip install 'kvledger[sign]'"
    assert HIDDEN.hide.message(hint) == hint
    label = HIDDEN.hide.namespace("tenant")
    assert HIDDEN.hide.message("pip install 'tenant'") == f"pip install {label!r}"
    assert "tenant" not in HIDDEN.hide.message("pip install 'kvledger[sign]tenant'")


def test_tokens_are_counted_and_shown_only_where_they_are_kept_and_revealed() -> None:
    kept = np.arange(6, dtype="<i4").tobytes()
    assert SHOWN.hide.tokens(kept, "full").ids == (0, 1, 2, 3, 4, 5)
    assert HIDDEN.hide.tokens(kept, "full").model_dump() == {"count": 6, "ids": None}
    for hide in (SHOWN.hide, HIDDEN.hide):
        assert hide.tokens(b"x" * 16, "hash", count=8).model_dump() == {"count": 8, "ids": None}
        assert hide.tokens(b"", "none", count=8).model_dump() == {"count": 8, "ids": None}
    many = np.zeros(TOKENS_SHOWN + 10, "<i4").tobytes()
    told = SHOWN.hide.tokens(many, "full")
    assert (told.count, len(told.ids or ())) == (TOKENS_SHOWN + 10, TOKENS_SHOWN)


def test_checksums_of_kv_are_counted_and_shown_only_where_tokens_are_revealed() -> None:
    sums = np.array([1, 2**64 - 1], np.uint64)
    assert HIDDEN.hide.sums(sums).model_dump() == {"count": 2, "sums": None}
    assert SHOWN.hide.sums(sums).sums == ("0000000000000001", "ffffffffffffffff")
    told = SHOWN.hide.sums(np.zeros(SUMS_SHOWN + 10, np.uint64))
    assert (told.count, len(told.sums or ())) == (SUMS_SHOWN + 10, SUMS_SHOWN)


@pytest.mark.parametrize(
    ("reason", "cause", "told"),
    [
        ("KeyError: token 7 of tenant", "error", "KeyError"),
        ("my own words: 7", "error", "withheld"),
        ("token 7 is not wanted", "caller", "withheld"),
        ("", "caller", ""),
        (
            "4 of 12 tokens offered lie past the match at 8",
            "refused",
            "4 of 12 tokens offered lie past the match at 8",
        ),
        (
            "4 of 12 tokens offered lie past the match at 8",
            "skipped",
            "4 of 12 tokens offered lie past the match at 8",
        ),
    ],
)
def test_words_that_may_quote_tokens_are_withheld(reason: str, cause: str, told: str) -> None:
    event = RolledBack(0, 3, cause, reason, None)  # type: ignore[arg-type]
    hidden: Any = HIDDEN.payload(event)
    shown: Any = SHOWN.payload(event)
    assert (hidden.reason, shown.reason) == (told, reason)
    for teller, said in ((HIDDEN, told), (SHOWN, reason)):
        sentence = teller.event(found(event)).sentence
        assert sentence.startswith("3 events were undone: ")
        assert sentence.endswith(f" ({said})") == bool(said)


def test_operations_of_callers_are_withheld() -> None:
    assert [HIDDEN.hide.op(op) for op in ("commit", "events_dropped", "leak")] == [
        "commit",
        "events_dropped",
        "withheld",
    ]
    assert SHOWN.hide.op("leak") == "leak"


def test_half_a_surrogate_pair_in_a_callers_text_can_be_told() -> None:
    assert told_text("r\ud800") == "r?"
    assert told_text("naïve 💥") == "naïve 💥"
