"""Journals damaged at random: the audit always ends in a verdict, replay in a state or a typed error."""

import contextlib
import random
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from kvledger.core.events import Pages
from kvledger.journal.audit import audit
from kvledger.journal.records import StoredEvent
from kvledger.journal.replay import ReplayError, replay
from tests.support.hand_written import Journal
from tests.support.stories import HEALTHY


def width_for(number: int) -> Any:
    """The narrowest type of pages that holds `number`: what is wider leaves the quick ways."""
    return np.int32 if -(2**31) <= number < 2**31 else np.int64


def damaged_pages(value: Pages, chance: random.Random) -> Pages:
    if len(value) == 0 or chance.random() < 0.3:
        number = chance.choice([0, 1, 2, 9, -1, 17, 2**40])
        return np.append(value, np.array([number], width_for(number)))
    if chance.random() < 0.4:
        return value[:-1]
    number = chance.choice([0, 1, 2, 3, 9, -5, 17, 2**40])
    changed: Pages = value.astype(width_for(number))
    changed[chance.randrange(len(value))] = number
    return changed


def damaged_value(value: Any, chance: random.Random) -> Any:
    """Another value of the same type, as a decoder would let it through."""
    if isinstance(value, np.ndarray):
        return damaged_pages(value, chance)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return chance.choice([value + 1, value - 1, 0, -1, 4, 99, 2**62, -(2**70)])
    return value[:-1]


def damaged_event(event: Any, chance: random.Random) -> Any:
    """The event with one field changed; ids and SWA pages that may be absent also come and go."""
    values = {field.name: getattr(event, field.name) for field in fields(event)}
    names = [name for name, value in values.items() if isinstance(value, np.ndarray | int | bytes)]
    absent = [name for name in ("parent", "lease", "swa_pages") if name in names and chance.random() < 0.2]
    if absent and event.kind in ("node_created", "node_deleted", "request_row_changed"):
        return replace(event, **{absent[0]: None})
    if "swa_pages" in values and values["swa_pages"] is None:
        return replace(event, **{"swa_pages": np.array([1], np.int32)})
    if not names:
        return event
    name = chance.choice(names)
    return replace(event, **{name: damaged_value(values[name], chance)})


def damaged(journal: Journal, chance: random.Random) -> Journal:
    number = chance.choice([i for i, transaction in enumerate(journal) if i > 0 and transaction.events])
    transaction = journal[number]
    events = list(transaction.events)
    at = chance.randrange(len(events))
    match chance.randrange(6):
        case 0:
            del events[at]
        case 1:
            events.insert(at, chance.choice([stored for t in journal for stored in t.events]))
        case 2:
            events[at] = replace(events[at], undone=not events[at].undone)
        case 3:
            chance.shuffle(events)
        case _:
            events[at] = replace(events[at], event=damaged_event(events[at].event, chance))
    return [*journal[:number], replace(transaction, events=events), *journal[number + 1 :]]


def renumbered(journal: Journal) -> Journal:
    """Dense seqs again, so that the fold gets past the gap and meets the damage itself."""
    seq = 0
    result = []
    for transaction in journal:
        events = [
            StoredEvent(type(s.seq)(seq + i), s.undone, s.event) for i, s in enumerate(transaction.events, 1)
        ]
        result.append(replace(transaction, first_seq=type(transaction.first_seq)(seq + 1), events=events))
        seq += len(events)
    return result


@pytest.mark.parametrize("seed", range(40))
def test_damage_of_any_kind_ends_in_a_verdict_and_in_a_state_or_a_typed_error(seed: int) -> None:
    chance = random.Random(seed)
    for story in HEALTHY.values():
        for _ in range(6):
            journal = story()
            for _ in range(chance.randrange(1, 4)):
                journal = damaged(journal, chance)
            journal = renumbered(journal)
            assert audit(journal).verdict in ("pass", "fail")
            with contextlib.suppress(ReplayError):
                replay(journal).state.digest()
