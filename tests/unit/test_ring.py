"""What is written to the ring between two processes is read, in order and once, whatever the sizes."""

import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvledger.journal.apart.board import Board
from kvledger.journal.apart.ring import COUNTERS, READ, RingReader, RingWriter
from tests.support.stored_events import seeded

SIZE = 64


def board(size: int = SIZE) -> tuple[memoryview, memoryview]:
    """The memory of a ring of so many bytes, of this process alone, and its counters."""
    return memoryview(bytearray(size)), memoryview(bytearray(8 * COUNTERS)).cast("q")


def rest() -> None:
    """Let the other thread go on, which the interpreter would do far more rarely."""
    time.sleep(1e-4)


def never() -> None:
    raise AssertionError("there was room")


def test_what_fits_is_there_at_once_and_once() -> None:
    both = board()
    writer, reader = RingWriter(*both), RingReader(*both)
    assert reader.read() == b""
    writer.write([b"ab", memoryview(b"cd"), b""], never)
    writer.write([], never)
    writer.write([b"e"], never)
    assert reader.read() == b"abcde"
    assert reader.read() == b""
    assert both[1].tolist() == [5, 5]


@seeded
@given(st.lists(st.lists(st.binary(max_size=3 * SIZE), max_size=4), max_size=12), st.data())
def test_any_pieces_arrive_in_order_whenever_they_are_read(
    writes: list[list[bytes]], data: st.DataObject
) -> None:
    both = board()
    writer, reader = RingWriter(*both), RingReader(*both)
    got = bytearray()

    def read() -> None:
        part = reader.read()
        assert part, "it waited although there was room"
        got.extend(part)

    for pieces in writes:
        writer.write(pieces, read)
        if data.draw(st.booleans()):
            got += reader.read()
    got += reader.read()
    assert got == b"".join(piece for pieces in writes for piece in pieces)


@pytest.mark.parametrize("before", [0, 1, SIZE - 1])
@pytest.mark.parametrize("size", [SIZE - 1, SIZE])
def test_a_ring_takes_as_many_bytes_as_it_has_from_any_place(before: int, size: int) -> None:
    both = board()
    writer, reader = RingWriter(*both), RingReader(*both)
    writer.write([b"x" * before], never)
    assert len(reader.read()) == before
    sent = bytes(range(size))
    writer.write([sent[:7], sent[7:]], never)
    assert reader.read() == sent


def test_nothing_of_a_write_is_seen_before_all_of_it_where_all_of_it_fits() -> None:
    both = board()
    writer, reader = RingWriter(*both), RingReader(*both)
    seen = []

    class Looking(bytes):
        """Bytes that look at the ring when their length is asked for, between two copies."""

        def __len__(self) -> int:
            seen.append(reader.read())
            return super().__len__()

    writer.write([b"one", Looking(b"two"), b"three"], never)
    assert seen == [b"", b""]
    assert reader.read() == b"onetwothree"


def test_whoever_gives_up_waiting_leaves_what_was_read_and_what_had_room() -> None:
    both = board()
    writer, reader = RingWriter(*both), RingReader(*both)

    def give_up() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        writer.write([b"a" * SIZE, b"b"], give_up)
    assert reader.read() == b"a" * SIZE


def test_both_ends_at_once() -> None:
    both = board(1_024)
    writer, reader = RingWriter(*both), RingReader(*both)

    def wait() -> None:
        assert thread.is_alive(), "nobody reads any more"
        rest()

    sent = [bytes([i % 256]) * (i % 777) for i in range(3_000)]
    got = bytearray()
    total = sum(map(len, sent))

    def read() -> None:
        while len(got) < total:
            if part := reader.read():
                got.extend(part)
            else:
                rest()

    thread = threading.Thread(target=read)
    thread.start()
    for i in range(0, len(sent), 3):
        writer.write(sent[i : i + 3], wait)
    thread.join()
    assert got == b"".join(sent)


def test_the_memory_of_a_board_is_seen_under_its_file() -> None:
    ours = Board()
    theirs = Board(ours.file)
    RingWriter(ours.ring, ours.counters).write([b"hello"], never)
    assert RingReader(theirs.ring, theirs.counters).read() == b"hello"
    assert ours.counters[READ] == 5
    ours.forget_file()
