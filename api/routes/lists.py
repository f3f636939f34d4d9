"""Pages of a list that is ordered by a number: a seq, or a transaction's.

The cursor of a page is the number of its last item. One item more than is shown is taken, to know whether
there are more.
"""

from collections.abc import Callable, Iterable
from typing import Annotated, Literal, NamedTuple, TypeVar

from fastapi import Query

from kvledger.api.cursors import decode_cursor, encode_cursor
from kvledger.api.library import OpenedJournal
from kvledger.api.schemas.common import SEQ_MAX, Page
from kvledger.journal.lookups.beginning import unseen

Found = TypeVar("Found")
Told = TypeVar("Told")

Order = Literal["asc", "desc"]
OrderParam = Annotated[Order, Query(description="By seq: `asc` oldest first, `desc` newest first.")]
SeqParam = Annotated[int | None, Query(ge=0, le=SEQ_MAX)]
TimeParam = Annotated[int | None, Query(ge=0, le=SEQ_MAX, description="Microseconds since 1970.")]


class Place(NamedTuple):
    """Where a page of a list begins: after number `after` where it rises, before `before` where it falls."""

    name: str
    newest_first: bool
    after: int | None
    before: int | None

    @classmethod
    def of(cls, name: str, cursor: str | None, order: Order) -> "Place":
        """Read the cursor of the list `name`; those of its two orders are not interchangeable."""
        name = f"{name}-{order}"
        at = None if cursor is None else decode_cursor(name, cursor, types=(int,))[0]
        if order == "desc":
            return cls(name, True, None, at)
        return cls(name, False, at, None)


def page_of(
    place: Place,
    found: Iterable[Found],
    *,
    limit: int,
    number: Callable[[Found], int],
    tell: Callable[[Found], Told],
    not_here_before: Callable[[], int | None],
) -> Page[Told]:
    """At most `limit` of `found`, of which one more was asked for.

    What was pruned is asked after they were taken: a prune in between is then told, not passed over.
    """
    taken: list[Found] = []
    following = None
    for one in found:
        if len(taken) == limit:
            following = encode_cursor(place.name, number(taken[-1]))
            break
        taken.append(one)
    return Page(items=tuple(map(tell, taken)), next=following, not_here_before=not_here_before())


def missing_before(
    opened: OpenedJournal,
    *,
    first_seq: int | None = None,
    since_us: int | None = None,
    transaction: int | None = None,
) -> int | None:
    """The seq before which events that this answer would have to see were pruned; None where none were."""
    gone = unseen(opened.reader, first_seq=first_seq, since_us=since_us, transaction=transaction)
    return None if gone is None else int(gone.last_seq) + 1
