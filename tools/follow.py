"""Following a journal: its last events, then each one as it is stored, none twice and none left out."""

from collections.abc import Callable, Iterator

from kvledger.core.ids import Seq
from kvledger.journal import EventFilter, FoundEvent, JournalReader


def follow(
    reader: JournalReader, last: int, *, pause: Callable[[], None] | None = None
) -> Iterator[FoundEvent]:
    """The `last` events and, with `pause`, all that follow: it is called whenever nothing new is there.

    A seq becomes visible with the whole of its transaction and never after a later one, so the last seq seen
    is all there is to remember. Without `pause` it ends; errors as `JournalReader.find`.
    """
    seen = max(0, reader.head().seq - last)
    while True:
        news = False
        for found in reader.find(EventFilter(first_seq=Seq(seen + 1))):
            news = True
            seen = int(found.seq)
            yield found
        if pause is None:
            return
        if not news:
            pause()
