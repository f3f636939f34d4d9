"""Cursors carry a place and nothing else, and only back to their own list."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvledger.api.cursors import CURSOR_CHARACTERS, decode_cursor, encode_cursor
from kvledger.api.problems import Refusal
from kvledger.api.schemas.common import SEQ_MAX
from kvledger.core.ids import NAME_CHARACTERS

SEQS = st.integers(0, SEQ_MAX)
NAMES = st.text(st.characters(codec="utf-8"), max_size=NAME_CHARACTERS)


@given(seq=SEQS, name=NAMES)
def test_a_cursor_gives_back_the_place_that_was_put_in(seq: int, name: str) -> None:
    cursor = encode_cursor("leases", seq, name)
    assert decode_cursor("leases", cursor, types=(int, str)) == (seq, name)
    assert all(character.isascii() and (character.isalnum() or character in "-_") for character in cursor)


@given(text=st.text(max_size=60))
def test_any_text_is_a_place_or_is_refused(text: str) -> None:
    with suppress(Refusal):
        (seq,) = decode_cursor("events-asc", text, types=(int,))
        assert 0 <= seq <= SEQ_MAX


def test_a_cursor_of_another_list_or_shape_is_refused() -> None:
    cursor = encode_cursor("events-asc", 7)
    for name, types in (
        ("events-desc", (int,)),
        ("events-asc", (str,)),
        ("events-asc", (int, int)),
        ("x", ()),
    ):
        with pytest.raises(Refusal):
            decode_cursor(name, cursor, types=types)


@pytest.mark.parametrize("name", ["a" * NAME_CHARACTERS, "\x7f" * NAME_CHARACTERS])
def test_the_longest_name_of_a_request_fits_a_cursor(name: str) -> None:
    assert len(encode_cursor("requests", name)) <= CURSOR_CHARACTERS
