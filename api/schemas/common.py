"""What many answers share: the seq they are true at, runs of pages, pages of a list, problems."""

from typing import Annotated, Generic, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

SEQ_MAX = 2**63 - 1
"""No seq, number or id is above this: no database's integer holds more."""

JSON_SEQ_MAX = 2**53 - 1
"""In the body of a request: many readers of JSON hold no larger number exactly."""


def _no_guess(value: object) -> object:
    """The value, unless it is a truth value or a text, which pydantic would read as a number."""
    if isinstance(value, bool | str):
        raise PydanticCustomError("int_type", "Input should be a whole number")
    return value


def _no_guesses(values: object) -> object:
    """As `_no_guess` for every item of a list. Cost: a hundredth of a second for the longest."""
    if isinstance(values, list) and not {bool, str}.isdisjoint(map(type, values)):
        for value in values:
            _no_guess(value)
    return values


WHOLE = BeforeValidator(_no_guess)
"""For an integer in the body of a request, written behind its bounds. It is an integer as JSON Schema has it:
`1.0` is one, `true` and `"1"` are none."""

WHOLE_EACH = BeforeValidator(_no_guesses)
"""For a list of integers: `WHOLE` for each, at once."""

Item = TypeVar("Item")

PoolName = Literal["full", "swa"]

Run = tuple[int, int]
"""`(first, count)`: so many consecutive page or slot numbers from `first` on."""


class Answer(BaseModel):
    """Base of every answer: frozen, and nothing that is not declared."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class At(Answer):
    """Where in the journal a state stands: the last transaction boundary at or before the seq asked for.

    `asked` is None where the newest state was asked for. `settled`: the answer can never change any more.
    """

    asked: Annotated[int | None, Field(examples=[1500])]
    seq: Annotated[int, Field(ge=0, examples=[1498])]
    transaction: Annotated[int, Field(ge=0, examples=[212])]
    time_us: Annotated[int | None, Field(description="Microseconds since 1970 of that transaction.")] = None
    settled: bool


class Runs(Answer):
    """Page or slot numbers in the order of their tokens, as runs; `omitted` runs were left out at the end."""

    total: Annotated[int, Field(ge=0, description="How many numbers there are in all, with omitted ones.")]
    runs: tuple[Run, ...]
    omitted: int = 0


class Tokens(Answer):
    """Token ids, or how many there are where they are hidden, hashed or not stored.

    `ids` is None unless the journal keeps them and the service was started to reveal them; then it holds the
    first of them, at most a bounded number.
    """

    count: int
    ids: tuple[int, ...] | None = None


class Checksums(Answer):
    """Checksums of KV, one a page, or how many there are where they are hidden: they could confirm a guess.

    `sums`, 16 hexadecimal digits each, is None unless the service was started to reveal tokens; then it holds
    the first of them, at most a bounded number.
    """

    count: int
    sums: tuple[str, ...] | None = None


class OriginOut(Answer):
    """Which forward computed some KV: a request and its epoch; no request for a raw insert."""

    request: str | None
    epoch: int


class Page(Answer, Generic[Item]):
    """One page of a list. `next` continues it, None at its end.

    `not_here_before`: events before this seq were pruned from the store, so what they would add is missing;
    None where nothing is.
    """

    items: tuple[Item, ...]
    next: Annotated[str | None, Field(description="Give it as `cursor` to get the next page.")] = None
    not_here_before: int | None = None


class AbsentOut(Answer):
    """What was asked for is not there at this seq, as `sentence` says; for who asked with `absent=tell`."""

    at: At
    absent: Literal[True] = True
    sentence: Annotated[str, Field(examples=["node 812 is not in the tree at this seq"])]


class Problem(BaseModel):
    """A refusal (RFC 9457, `application/problem+json`)."""

    model_config = ConfigDict(extra="allow")

    type: Annotated[str, Field(examples=["about:blank"])] = "about:blank"
    title: Annotated[str, Field(examples=["Unknown node"])]
    status: Annotated[int, Field(examples=[404])]
    detail: Annotated[str, Field(examples=["node 812 is not in the tree at seq 1498"])]
    instance: str | None = None
