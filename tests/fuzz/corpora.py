"""The committed inputs of each target, and seeded mutations of them: what is replayed without atheris."""

import random
from collections.abc import Iterator
from pathlib import Path

TARGETS = ("event_decoder", "trace_reader", "parquet_reader")

CORPUS = Path(__file__).resolve().parent / "corpus"

TELLING = (
    b"", b"\0", b"\n", b"-", b"0", b"1", b"9" * 19, b"-1", b"1.5", b"1e999", b"NaN", b"null", b"true", b"[]",
    b"{}", b"[1,1]", b'""', b'"\\ud800"', b'"\\u0000"', b"[[", b"\xff", b"\xff\xff\xff\x7f", b"\0\0\0\x80",
)  # fmt: skip
"""Pieces that readers stumble over."""


def inputs(target: str) -> dict[str, bytes]:
    """The corpus of a target: name of the file -> its bytes, by name."""
    return {path.name: path.read_bytes() for path in sorted((CORPUS / target).iterdir())}


def mutations(target: str, *, count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """`count` mutated inputs, the same for one seed and corpus, each with what it was made from."""
    dice = random.Random(f"{target} {seed}")
    corpus = inputs(target)
    names = sorted(corpus)
    for number in range(count):
        name = names[number % len(names)]
        data = corpus[name]
        for _ in range(dice.choice((1, 1, 1, 2, 4))):
            data = _mutated(data, corpus[dice.choice(names)], dice)
        yield f"mutation {number} of {name}", data


def _mutated(data: bytes, other: bytes, dice: random.Random) -> bytes:
    """One change: bits flipped, a piece cut out, doubled or replaced, or the end of another input."""
    start = dice.randrange(len(data) + 1)
    end = min(len(data), start + dice.choice((0, 1, 2, 4, 8, 40, 400)))
    match dice.randrange(5):
        case 0:
            flipped = bytearray(data)
            for _ in range(dice.choice((1, 1, 3))):
                if flipped:
                    flipped[dice.randrange(len(flipped))] ^= 1 << dice.randrange(8)
            return bytes(flipped)
        case 1:
            return data[:start] + data[end:]
        case 2:
            return data[:end] + data[start:end] + data[end:]
        case 3:
            return data[:start] + dice.choice(TELLING) + data[end:]
        case _:
            return data[:start] + other[dice.randrange(len(other) + 1) :]
