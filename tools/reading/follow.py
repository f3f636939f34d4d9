"""Following a journal: its last events, then each one as it is stored, none twice and none left out."""

from collections.abc import Callable, Iterator

from kvledger.journal import FoundEvent, LookUpSource


def first_of_last(source: LookUpSource, last: int) -> int:
    """The seq from which on the `last` events stand."""
    return max(1, source.head().seq - last + 1)


def follow(
    source: LookUpSource, last: int, *, pause: Callable[[], None] | None = None
) -> Iterator[FoundEvent]:
    """The `last` events and, with `pause`, all that follow: it is called whenever nothing new is there.

    A seq becomes visible with the whole of its transaction and never after a later one, so the last seq seen
    is all there is to remember. Without `pause` it ends; errors as `LookUpSource.find`.
    """
    seen = first_of_last(source, last) - 1
    while True:
        news = False
        for found in source.find(after_seq=seen):
            news = True
            seen = int(found.seq)
            yield found
        if pause is None:
            return
        if not news:
            pause()
