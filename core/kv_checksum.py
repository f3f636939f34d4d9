"""Checksums of KV bytes, computed where the KV lies, by page and over all layers of a pool at once.

The definition is told in docs/format.md too. The bytes that a page has in one tensor are read as unsigned
words of 32 bits, little-endian, the last one filled up with zero bits; so NaN equals itself and -0 differs
from 0. The checksum of a page over tensors t = 0, 1, ... (`k`, then `v` of each layer, layers in rising
order) is, modulo 2**64,

    1 + sum over t and words i of  word[t][i] * odd(i) * odd(2**32 + t)

Factors are odd, so no single word can change without changing the sum; that they depend on the place shows
words that change places. They have twice as many bits as a word, so that changes in the highest bits of
several words hardly ever cancel out either: two such bits do at one pair of places in 2**32. Integer sums do
not depend on the order of their parts, so every device comes to the same number. It finds accidents; who
wants to deceive it can.

On a processor two words are one of 64 bits, with lower half a and upper half b, read where it lies:

    a * f + b * g  =  (a + b * 2**32) * f + b * (g - f * 2**32)     modulo 2**64

which is two sums of products over words of 64 bits. Elsewhere words are widened first. What this takes room
for is allocated at the beginning: a sum asks for none that grows with the bytes that are summed.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from kvledger.core.errors import KVUnreadable
from kvledger.core.events import Sums, WidePages
from kvledger.core.kv_tensors import KVTensors
from kvledger.core.pools import Fingerprints

HOST_WORDS = 2**17
"""Words of 64 bits that a processor works on at once: a MiB, which with its copy stays in the caches."""

DEVICE_WORDS = 2**22
"""Words that another device works on at once: 48 MiB of room, and launches cost less than what they read."""

DEVICE_PAGES = 2**12
"""Pages between two copies of sums from such a device to the host."""

HALF_WORD = np.uint64(32)

FIRST_TENSOR = 2**32
"""Where factors of tensors begin; a page has fewer words."""


class KVChecksum:
    """Sums pages of one block of tensors `[tensors, slots, ...]`, in which a page is `page_size` slots.

    One thread at a time: all sums are made in the same room. Where the device has none for it, what torch
    raises is passed on.
    """

    def __init__(self, block: torch.Tensor, *, page_size: int) -> None:
        tensors, slots, *shape = block.shape
        size = page_size * int(np.prod(shape)) * block.element_size()
        self._of: Callable[[WidePages], Sums]
        if not tensors:
            self._of = _sums_of_nothing
        elif block.device.type == "cpu" and size % 8 == 0:
            self._of = _HostSums(block, pages=slots // page_size, size=size).of
        else:
            self._of = _DeviceSums(block, pages=slots // page_size, size=size).of

    def of(self, pages: WidePages) -> Sums:
        """One checksum a page of `pages` (int64[n], in the pool): uint64[n]. O(their bytes).

        KVUnreadable where the device fails, or has not the little room that torch itself may want.
        """
        try:
            return self._of(pages)
        except (RuntimeError, MemoryError) as error:
            raise KVUnreadable(f"the KV of {len(pages)} pages could not be read: {error}") from error


class PoolChecksums:
    """Checksums of the pages of both pools. `at_once`: room for them is taken now, not at the first sum."""

    def __init__(self, full: KVTensors, swa: KVTensors, *, at_once: bool) -> None:
        self._tensors = (full, swa)
        self._made: tuple[KVChecksum, ...] = self._make() if at_once else ()

    def of(self, full: WidePages, swa: WidePages) -> Fingerprints:
        """Sums of Full pages and of the SWA pages beside them, 0 for none: uint64[n, 2]. O(their bytes).

        KVUnreadable where the device fails.
        """
        if not self._made:
            self._made = self._make()
        there = np.flatnonzero(swa)
        found: Fingerprints = np.zeros((len(full), 2), dtype=np.uint64)
        found[:, 0] = self._made[0].of(full)
        found[there, 1] = self._made[1].of(swa[there])
        return found

    def _make(self) -> tuple[KVChecksum, ...]:
        return tuple(KVChecksum(one.block, page_size=one.page_size) for one in self._tensors)


class _Part(NamedTuple):
    """What is summed in one go: some tensors of some of the pages."""

    tensors: slice
    pages: slice


def _parts(*, tensors: int, pages: int, words: int, at_once: int) -> Iterator[_Part]:
    """Cut [tensors, pages] of `words` words each into parts of at most `at_once` words, or of one page."""
    most_tensors = min(tensors, max(1, at_once // words))
    most_pages = max(1, at_once // (words * most_tensors))
    for page in range(0, pages, most_pages):
        for tensor in range(0, tensors, most_tensors):
            yield _Part(
                slice(tensor, min(tensor + most_tensors, tensors)), slice(page, min(page + most_pages, pages))
            )


def _most_words(*, tensors: int, pages: int, words: int, at_once: int) -> int:
    """Words of the largest part of a pool, which is the first one: as many as there has to be room for."""
    first = next(_parts(tensors=tensors, pages=pages, words=words, at_once=at_once))
    most: int = first.tensors.stop * first.pages.stop * words
    return most


class _HostSums:
    """On a processor: pages that follow one another are read where they lie, others copied to its caches."""

    def __init__(self, block: torch.Tensor, *, pages: int, size: int) -> None:
        tensors, words = len(block), size // 8
        plain = block.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[block.element_size()])
        self._words = plain.numpy().reshape(tensors, -1).view(np.uint64).reshape(tensors, pages, words)
        factors = odd(0, 2 * words).view(np.uint64)
        self._whole = factors[0::2].copy()
        self._upper = factors[1::2] - (self._whole << HALF_WORD)
        self._of_tensor = odd(FIRST_TENSOR, tensors).view(np.uint64)[:, None]
        self._most = _most_words(tensors=tensors, pages=pages, words=words, at_once=HOST_WORDS)
        self._copies = np.empty(self._most, np.uint64)
        self._halves = np.empty(self._most, np.uint64)

    def of(self, pages: WidePages) -> Sums:
        tensors, _, words = self._words.shape
        by_tensor = np.empty((tensors, len(pages)), np.uint64)
        upper = np.empty((tensors, len(pages)), np.uint64)
        jumps = np.flatnonzero(pages[1:] - pages[:-1] != 1)
        for part in _parts(tensors=tensors, pages=len(pages), words=words, at_once=self._most):
            some = part.pages
            in_a_row = not len(jumps) or not ((jumps >= some.start) & (jumps < some.stop - 1)).any()
            found = self._read(self._words[part.tensors], pages[some], in_a_row=in_a_row)
            halves = self._halves[: found.size].reshape(found.shape)
            np.right_shift(found, HALF_WORD, out=halves)
            np.einsum("tpw,w->tp", found, self._whole, out=by_tensor[part])
            np.einsum("tpw,w->tp", halves, self._upper, out=upper[part])
        by_tensor += upper
        by_tensor *= self._of_tensor
        sums: Sums = by_tensor.sum(axis=0, dtype=np.uint64)
        sums += np.uint64(1)
        return sums

    def _read(
        self, source: npt.NDArray[np.uint64], pages: WidePages, *, in_a_row: bool
    ) -> npt.NDArray[np.uint64]:
        if in_a_row:
            return source[:, pages[0] : pages[-1] + 1]
        shape = (len(source), len(pages), source.shape[2])
        copies = self._copies[: shape[0] * shape[1] * shape[2]].reshape(shape)
        # With mode "raise" numpy would make a copy of its own first; that pages are the pool's is known.
        np.take(source, pages, axis=1, out=copies, mode="clip")
        return copies


class _DeviceSums:
    """On any device, for pages of any size: words are copied, widened and multiplied in room kept for it."""

    def __init__(self, block: torch.Tensor, *, pages: int, size: int) -> None:
        # Where a page ends in half a word all are read as halves, the second one of each further up.
        halves = size % 4 != 0
        word = torch.int16 if halves else torch.int32
        tensors, words = len(block), size // word.itemsize
        self._device = block.device
        self._source = block.view(-1).view(word).view(tensors, pages, words)
        self._mask = 0xFFFF if halves else 0xFFFF_FFFF
        place = np.arange(words)
        factors = odd(0, words)[place // 2] << (place % 2 * 16) if halves else odd(0, words)
        self._factors = torch.from_numpy(factors).to(self._device)
        self._of_tensor = torch.from_numpy(odd(FIRST_TENSOR, tensors)).to(self._device)[:, None]
        self._most = _most_words(tensors=tensors, pages=pages, words=words, at_once=DEVICE_WORDS)
        self._words = torch.empty(self._most, dtype=word, device=self._device)
        self._products = torch.empty(self._most, dtype=torch.int64, device=self._device)
        self._by_tensor = torch.empty(self._most // words, dtype=torch.int64, device=self._device)
        self._of_part = torch.empty(DEVICE_PAGES, dtype=torch.int64, device=self._device)
        self._sums = torch.empty(DEVICE_PAGES, dtype=torch.int64, device=self._device)
        self._pages = torch.empty(DEVICE_PAGES, dtype=torch.int64, device=self._device)

    def of(self, pages: WidePages) -> Sums:
        if self._device.type == "cuda":
            # KV may have been written on another stream than this one, and that does not wait for it.
            torch.cuda.synchronize(self._device)
        sums: Sums = np.empty(len(pages), np.uint64)
        for start in range(0, len(pages), DEVICE_PAGES):
            some = pages[start : start + DEVICE_PAGES]
            self._pages[: len(some)].copy_(torch.from_numpy(np.array(some)))
            self._sum(len(some))
            sums[start : start + len(some)] = self._sums[: len(some)].cpu().numpy().view(np.uint64)
        return sums

    def _sum(self, pages: int) -> None:
        """Sum the first `pages` pages of those that were copied to the device."""
        tensors, _, words = self._source.shape
        self._sums[:pages].fill_(1)
        for part in _parts(tensors=tensors, pages=pages, words=words, at_once=self._most):
            source, wanted = self._source[part.tensors], self._pages[part.pages]
            shape = (len(source), len(wanted), words)
            found = self._words[: shape[0] * shape[1] * words].view(shape)
            torch.index_select(source, 1, wanted, out=found)
            products = self._products[: found.numel()].view(shape)
            products.copy_(found).bitwise_and_(self._mask).mul_(self._factors)
            by_tensor = self._by_tensor[: shape[0] * shape[1]].view(shape[:2])
            torch.sum(products, dim=2, out=by_tensor)
            of_part = self._of_part[: len(wanted)]
            torch.sum(by_tensor.mul_(self._of_tensor[part.tensors]), dim=0, out=of_part)
            self._sums[part.pages].add_(of_part)


def _sums_of_nothing(pages: WidePages) -> Sums:
    return np.ones(len(pages), np.uint64)


def odd(start: int, count: int) -> npt.NDArray[np.int64]:
    """Members [start, start + count) of a fixed row of odd numbers: SplitMix64 of the place, last bit set.

    The finaliser is the published one (Steele, Lea and Flood, OOPSLA 2014).
    """
    mixed = (np.arange(start, start + count, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return (mixed | np.uint64(1)).view(np.int64)
