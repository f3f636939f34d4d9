"""Reads request traces in the Mooncake format (FAST'25): JSON lines without any text.

Each line has `timestamp` (ms), `input_length` and `output_length` (tokens), and `hash_ids`, one id per
`BLOCK_TOKENS` tokens of the input, the last block possibly short; equal leading ids mean a shared prefix.
Token ids are built from (block id, offset) so that equal blocks are equal tokens and different blocks share
none. Block ids are numbered by first appearance, so any ids fit as long as all tokens together fit an int32.
The tokens a request generates belong to it alone: they count down from the largest int32, away from the
blocks.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kvledger.core.errors import InvalidArgument
from kvledger.tools.workload.spec import (
    MAX_REQUESTS,
    LazyWorkload,
    Tokens,
    Workload,
    WorkRequest,
    check_requests,
)

BLOCK_TOKENS = 512
"""Tokens per hash id, fixed by the format."""

MAX_TOKEN = 2**31 - 1
"""Largest token id: ids are int32 everywhere."""

MAX_TIMESTAMP_MS = 2**53
"""The largest time that every JSON reader agrees on."""

MAX_REQUEST_TOKENS = 2**24
"""Longest input or output believed: a hundred times the longest context served, and still some memory."""

FIELDS = ("timestamp", "input_length", "output_length")


class TraceError(InvalidArgument):
    """A trace that cannot be read: `line` is 1-based, None when the file itself is the trouble."""

    def __init__(self, path: str, line: int | None, reason: str) -> None:
        self.path = path
        self.line = line
        self.reason = reason
        where = path if line is None else f"{path}, line {line}"
        super().__init__(f"{where}: {reason}")

    def __reduce__(self) -> tuple[type["TraceError"], tuple[str, int | None, str]]:
        return type(self), (self.path, self.line, self.reason)


def read_trace(path: Path, *, requests: int | None = None) -> Workload:
    """The first `requests` requests of the trace at `path`, all of them for None, in order of arrival.

    The lines are read and checked here, the tokens made when a request is asked for. Raises `TraceError` for
    a file that cannot be read, a line that is not of the format (with its number), a file without requests or
    with more than `MAX_REQUESTS`, and more different tokens than an int32 can name. Cost: O(block ids).
    """
    try:
        with path.open(encoding="utf-8") as lines:
            return parse_trace(lines, name=str(path), requests=requests)
    except OSError as error:
        raise TraceError(str(path), None, f"cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise TraceError(str(path), None, f"is not UTF-8 text: {error.reason}") from error


def parse_trace(lines: Iterable[str], *, name: str, requests: int | None = None) -> Workload:
    """Same as `read_trace` for lines that are there already; `name` stands for the path in errors."""
    if requests is not None:
        check_requests(requests)
    namer = _TokenNamer(name)
    outlines: list[_Outline] = []
    # Lines after the last one asked for are never read.
    for number, row in islice(_rows(lines, name), requests):
        if len(outlines) == MAX_REQUESTS:
            raise TraceError(name, number, f"is past {MAX_REQUESTS:,} requests, the most of one run")
        outlines.append(
            _Outline(
                number,
                row["timestamp"],
                row["input_length"],
                namer.blocks(number, row["hash_ids"]),
                namer.first_output(number, row["output_length"]),
                row["output_length"],
            )
        )
    if not outlines:
        raise TraceError(name, None, "holds no request")
    # Stable: requests of one moment keep the order of the file.
    outlines.sort(key=lambda outline: outline.arrival_ms)
    return LazyWorkload(len(outlines), lambda: map(_filled, outlines))


def _rows(lines: Iterable[str], name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(lines, start=1):
        if line.isspace():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            # A number of thousands of digits is a plain ValueError.
            detail = error.msg if isinstance(error, json.JSONDecodeError) else "too long a number or too deep"
            raise TraceError(name, number, f"not JSON ({detail})") from error
        fault = _fault(row)
        if fault is not None:
            raise TraceError(name, number, fault)
        yield number, row


def _is_count(value: object, smallest: int) -> bool:
    """An integer of at least `smallest`; JSON's true and 1.0 are none."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= smallest


def _fault(row: object) -> str | None:
    """What is wrong with one decoded line, or None."""
    if not isinstance(row, dict):
        return f"is a JSON {type(row).__name__}, an object is needed"
    for field in FIELDS:
        smallest = 1 if field == "input_length" else 0
        if field not in row:
            return f"has no {field!r}"
        if not _is_count(row[field], smallest):
            return f"{field!r} must be a whole number of at least {smallest}, it is {row[field]!r:.80}"
        largest = MAX_TIMESTAMP_MS if field == "timestamp" else MAX_REQUEST_TOKENS
        if row[field] > largest:
            return f"{field!r} is {row[field]!r:.80}, more than {largest}"
    ids = row.get("hash_ids")
    if not isinstance(ids, list) or not all(_is_count(block, 0) for block in ids):
        return "'hash_ids' must be a list of whole numbers of at least 0"
    needed = -(-row["input_length"] // BLOCK_TOKENS)
    if len(ids) != needed:
        return f"'hash_ids' names {_counted(len(ids))} where {row['input_length']} tokens have {needed}"
    return None


def _counted(blocks: int) -> str:
    return f"{blocks} block{'' if blocks == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class _Outline:
    """A request without its tokens: the line it stands in, and what names them."""

    line: int
    arrival_ms: int
    input_length: int
    blocks: npt.NDArray[np.int32]
    first_output: int
    output_length: int


def _filled(outline: _Outline) -> WorkRequest:
    """The request that an outline is of. Cost: O(tokens)."""
    starts = outline.blocks * np.int32(BLOCK_TOKENS)
    offsets = np.arange(BLOCK_TOKENS, dtype=np.int32)
    prompt: Tokens = (starts[:, None] + offsets).ravel()[: outline.input_length]
    end = outline.first_output + outline.output_length
    output: Tokens = np.arange(outline.first_output, end, dtype=np.int64).astype(np.int32)
    for tokens in (prompt, output):
        tokens.flags.writeable = False
    return WorkRequest(f"t{outline.line:06d}", outline.arrival_ms, prompt, output)


class _TokenNamer:
    """Names blocks and outputs with int32 tokens: blocks from 0 up, outputs from the top down."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._blocks: dict[int, int] = {}
        self._lowest_output = MAX_TOKEN + 1

    def blocks(self, line: int, ids: list[int]) -> npt.NDArray[np.int32]:
        """Numbers of the blocks, by first appearance in the trace, int32[n]."""
        known = self._blocks
        numbers = np.array([known.setdefault(block, len(known)) for block in ids], dtype=np.int32)
        self._check_room(line)
        return numbers

    def first_output(self, line: int, length: int) -> int:
        """The first of `length` tokens that are in no block and no other output."""
        self._lowest_output -= length
        self._check_room(line)
        return self._lowest_output

    def _check_room(self, line: int) -> None:
        if len(self._blocks) * BLOCK_TOKENS > self._lowest_output:
            raise TraceError(self._name, line, "brings more different tokens than int32 ids can name")
