"""Values as callers hand them in: spellings that mean integers or names, and what means neither.

A `Given` has the value and the plain one that it means, a list of integers, an `int` or a `str`: a call must
do with the one what it does with the other. `NOTHING` means that the value is none, and is to be refused.
"""

import array
import collections
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from hypothesis import settings
from hypothesis import strategies as st

bounded = settings(max_examples=60, deadline=None, derandomize=True, print_blob=True)
"""The same examples in every run."""


class Nothing:
    """What a value means that means nothing."""

    def __repr__(self) -> str:
        return "NOTHING"


NOTHING = Nothing()


class Given(NamedTuple):
    """A value, made anew for each use, and what it means."""

    make: Callable[[], Any]
    means: Any
    name: str

    def __repr__(self) -> str:
        return f"{self.name} meaning {self.means!r:.200}"


class Name(str):
    """A string that is not just a string."""


class Number(int):
    """Nor is this just an integer."""


class Thing:
    """Nothing that anybody knows."""


DTYPES = (
    np.int8,
    np.uint8,
    np.int16,
    np.uint16,
    np.int32,
    np.uint32,
    np.int64,
    np.longlong,
    np.uint64,
    ">i4",
    ">i8",
)

TENSORS = {torch.uint8: np.uint8, torch.int16: np.int16, torch.int32: np.int32, torch.int64: np.int64}


def _strided(values: np.ndarray) -> np.ndarray:
    wide = np.zeros(2 * len(values), dtype=values.dtype)
    wide[::2] = values
    return wide[::2]


def _read_only(values: np.ndarray) -> np.ndarray:
    values.setflags(write=False)
    return values


ARRAYS: dict[str, Callable[[Any], Any]] = {
    "array": lambda values: values,
    "every other": _strided,
    "reversed": lambda values: values[::-1].copy()[::-1],
    "read-only": _read_only,
    "memoryview": lambda values: memoryview(values),
    "not aligned": lambda values: np.frombuffer(b"x" + values.tobytes(), np.uint8)[1:].view(values.dtype),
    "column": lambda values: np.stack([values, values], axis=1)[:, 0],
}

SEQUENCES: dict[str, Callable[[Sequence[int]], Any]] = {
    "list": list,
    "tuple": tuple,
    "deque": collections.deque,
    "numbers": lambda values: [Number(value) for value in values],
    "scalars": lambda values: [np.int64(value) for value in values],
}


def _fits(values: Sequence[int], dtype: Any) -> bool:
    limits = np.iinfo(dtype)
    return all(limits.min <= value <= limits.max for value in values)


@st.composite
def spelled(draw: st.DrawFn, integers: st.SearchStrategy[list[int]]) -> Given:
    """Some way to hand in these integers."""
    values = draw(integers)
    ways: list[tuple[str, Callable[[], Any]]] = []
    for dtype in DTYPES:
        if _fits(values, dtype):
            shapes = [name for name in ARRAYS if name != "memoryview" or not str(dtype).startswith(">")]
            ways += [(f"{np.dtype(dtype)} {name}", partial(_array, values, dtype, name)) for name in shapes]
    for tensor, like in TENSORS.items():
        if _fits(values, like):
            ways.append((f"{tensor}", partial(torch.tensor, values, dtype=tensor)))
            ways.append((f"{tensor} strided", partial(_strided_tensor, values, tensor)))
    if _fits(values, np.int64):
        ways.append(("array.array", partial(array.array, "q", values)))
        ways += [(name, partial(make, values)) for name, make in SEQUENCES.items()]
    if values == list(range(len(values))):
        ways.append(("range", partial(range, len(values))))
    way, made = draw(st.sampled_from(ways)) if ways else ("list", partial(list, values))
    return Given(made, values, way)


def _array(values: list[int], dtype: Any, shape: str) -> Any:
    return ARRAYS[shape](np.array(values, dtype))


def _strided_tensor(values: list[int], dtype: torch.dtype) -> torch.Tensor:
    return torch.tensor([values, values], dtype=dtype).T[:, 0]


def _nothing(name: str, make: Callable[[], Any]) -> Given:
    return Given(make, NOTHING, name)


NO_INTEGERS = [
    _nothing("None", lambda: None),
    _nothing("a number", lambda: 7),
    _nothing("text", lambda: "1234"),
    _nothing("bytes", lambda: b"1234"),
    _nothing("bytearray of text", lambda: [b"1"]),
    _nothing("floats", lambda: [1.0, 2.0, 3.0, 4.0]),
    _nothing("NaN", lambda: np.array([1.0, math.nan])),
    _nothing("half floats", lambda: np.ones(4, np.float16)),
    _nothing("booleans", lambda: [True, False, True, True]),
    _nothing("boolean array", lambda: np.ones(4, bool)),
    _nothing("complex", lambda: np.ones(4, complex)),
    _nothing("objects", lambda: np.array([1, 2, 3, 4], dtype=object)),
    _nothing("texts", lambda: np.array(["1", "2"])),
    _nothing("times", lambda: np.arange(4).astype("M8[s]")),
    _nothing("records", lambda: np.zeros(4, dtype=[("a", "i4")])),
    _nothing("two dimensions", lambda: np.ones((2, 4), dtype=np.int64)),
    _nothing("no dimension", lambda: np.array(4)),
    _nothing("nested", lambda: [[1, 2], [3, 4]]),
    _nothing("ragged", lambda: [[1, 2], [3]]),
    _nothing("empty rows", lambda: np.ones((0, 4), dtype=np.int64)),
    _nothing("mixed", lambda: [1, "2", None]),
    _nothing("huge", lambda: [2**70]),
    _nothing("generator", lambda: (value for value in range(4))),
    _nothing("iterator", lambda: iter([1, 2, 3, 4])),
    _nothing("set", lambda: {1, 2, 3, 4}),
    _nothing("dict", lambda: {1: 2}),
    _nothing("thing", Thing),
    _nothing("class", lambda: int),
    _nothing("float tensor", lambda: torch.ones(4)),
    _nothing("bfloat16 tensor", lambda: torch.ones(4, dtype=torch.bfloat16)),
    _nothing("grown tensor", lambda: torch.ones(4, requires_grad=True)),
    _nothing("boolean tensor", lambda: torch.ones(4, dtype=torch.bool)),
    _nothing("tensor of two dimensions", lambda: torch.ones((2, 4), dtype=torch.int64)),
    _nothing("tensor without data", lambda: torch.ones(4, dtype=torch.int64, device="meta")),
    _nothing("sparse tensor", lambda: torch.ones(4, dtype=torch.int64).to_sparse()),
]


def integers_given(integers: st.SearchStrategy[list[int]]) -> st.SearchStrategy[Given]:
    """These integers in some spelling, or what is no row of integers at all."""
    return spelled(integers) | st.sampled_from(NO_INTEGERS)


NO_NUMBERS = [
    _nothing("NumPy's True", lambda: np.True_),
    _nothing("True", lambda: True),
    _nothing("a float", lambda: 4.0),
    _nothing("a NumPy float", lambda: np.float64(4)),
    _nothing("NaN", lambda: math.nan),
    _nothing("infinity", lambda: math.inf),
    _nothing("complex", lambda: 4j),
    _nothing("text", lambda: "4"),
    _nothing("no text", lambda: ""),
    _nothing("bytes", lambda: b"4"),
    _nothing("list", lambda: [4]),
    _nothing("array", lambda: np.array([4])),
    _nothing("no dimension", lambda: np.array(4)),
    _nothing("tensor", lambda: torch.tensor(4)),
    _nothing("thing", Thing),
    _nothing("class", lambda: int),
]

EDGES = [0, 1, 3, 4, 5, 8, 12, 16, 64, 2**31 - 1, 2**31, 2**63 - 1, 2**63, 2**70, -1, -4, -(2**63), -(2**70)]


@st.composite
def number_spelled(draw: st.DrawFn, numbers: st.SearchStrategy[int]) -> Given:
    """Some way to hand in a number."""
    value = draw(numbers)
    ways: list[tuple[str, Callable[[], Any]]] = [("int", lambda: value), ("subclass", lambda: Number(value))]
    for dtype in (np.int8, np.uint8, np.int32, np.int64, np.uint64):
        if _fits([value], dtype):
            ways.append((f"{np.dtype(dtype)}", partial(dtype, value)))
    name, make = draw(st.sampled_from(ways))
    return Given(make, value, name)


def numbers_given(usual: st.SearchStrategy[int], *, optional: bool = False) -> st.SearchStrategy[Given]:
    """A usual number, one at an edge, or none at all; None too, which means itself where it is `optional`."""
    none = Given(lambda: None, None if optional else NOTHING, "None")
    return st.one_of(
        number_spelled(usual), number_spelled(st.sampled_from(EDGES)), st.sampled_from([*NO_NUMBERS, none])
    )


NO_TEXTS = [
    _nothing("number", lambda: 1),
    _nothing("bytes", lambda: b"name"),
    _nothing("list", lambda: ["name"]),
    _nothing("array", lambda: np.array("name")),
    _nothing("thing", Thing),
    _nothing("class", lambda: str),
]

ODD_TEXTS = ["", "a\0b", "\ud800", "x\udfff", "ä€😀", "r" * 512, "r" * 513, "'; --", "%s", "\n", "../..", "ﬀ"]


@st.composite
def text_spelled(draw: st.DrawFn, texts: st.SearchStrategy[str]) -> Given:
    """A text, or a string that is one and more."""
    value = draw(texts)
    if draw(st.booleans()):
        return Given(lambda: Name(value), value, "subclass")
    return Given(lambda: value, value, "text")


def texts_given(*usual: str, optional: bool = False) -> st.SearchStrategy[Given]:
    """A usual text, an odd one, or none at all; None too, which means itself where it is `optional`."""
    none = Given(lambda: None, None if optional else NOTHING, "None")
    return st.one_of(
        text_spelled(st.sampled_from(usual)),
        text_spelled(st.sampled_from(ODD_TEXTS) | st.text(max_size=6)),
        st.sampled_from([*NO_TEXTS, none]),
    )
