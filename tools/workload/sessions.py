"""The kinds of client behind the built-in workload, each a short run of requests.

A session yields drafts whose arrival is relative to its own start. What the kinds are for:

* chats grow: each turn repeats the whole conversation, so its prefix is what the turn before published;
* helpdesks share: many clients put one short question behind the same system prompt;
* readers stay: a long document, a first question whose answer is decoded for a long time, and meanwhile
  questions about excerpts of the same document. The long answer keeps the document's Full KV locked long
  after it gave up its SWA half; an excerpt ends where no window is live any more, is computed afresh, and
  its commit meets tombstones that are locked;
* editors change their mind: a prompt asked again and again with another ending. Each parts from the one
  before a little ahead of its end, where most of a window is live and not all of it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kvledger.tools.workload.spec import Tokens
from kvledger.tools.workload.texts import TextSource


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """A request before it has a name and a place in time. `offset_ms` counts from the session's start."""

    offset_ms: int
    prompt: Tokens
    output: Tokens


def chat(source: TextSource, system: Tokens) -> Iterator[Draft]:
    """A conversation of a few turns under `system`, each one longer by question and answer."""
    history = np.concatenate([system, source.text(source.between(20, 120))])
    offset_ms = 0
    for _ in range(source.between(2, 5)):
        answer = source.text(source.between(20, 140))
        yield Draft(offset_ms, history, answer)
        history = np.concatenate([history, answer, source.text(source.between(10, 90))])
        # Longer than an answer takes, most of the time: some turns overtake their predecessor.
        offset_ms += source.between(1_500, 9_000)


def helpdesk(source: TextSource, system: Tokens) -> Iterator[Draft]:
    """One question behind a system prompt that others use too."""
    yield Draft(
        0, np.concatenate([system, source.text(source.between(15, 200))]), source.text(source.between(5, 60))
    )


def reader(source: TextSource, system: Tokens) -> Iterator[Draft]:
    """A long document, one long answer about all of it, and questions about excerpts meanwhile."""
    document = np.concatenate([system, source.text(source.between(900, 2_200))])
    yield Draft(0, np.concatenate([document, source.text(30)]), source.text(source.between(350, 700)))
    offset_ms = 1_500
    for _ in range(source.between(3, 6)):
        offset_ms += source.between(200, 2_500)
        whole = source.chance(0.3)
        end = len(document) if whole else source.between(len(document) // 3, len(document))
        question = source.text(source.between(10, 60))
        yield Draft(
            offset_ms, np.concatenate([document[:end], question]), source.text(source.between(10, 120))
        )


def editor(source: TextSource, system: Tokens) -> Iterator[Draft]:
    """A letter whose last lines are written anew a few times, each time from a little further up."""
    letter = np.concatenate([system, source.text(source.between(200, 700))])
    offset_ms = 0
    for _ in range(source.between(3, 6)):
        yield Draft(offset_ms, letter, source.text(source.between(5, 40)))
        kept = len(letter) - source.between(1, 60)
        letter = np.concatenate([letter[:kept], source.text(source.between(20, 80))])
        offset_ms += source.between(700, 4_000)
