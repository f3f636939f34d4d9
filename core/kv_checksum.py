"""Checksums of KV bytes, computed where the KV lies.

A page's bytes are read as words, 16 bits for elements of two bytes and 32 for larger ones, so NaN equals
itself and -0 differs from 0. The checksum of a page over several tensors is, modulo 2**64,

    1 + sum over tensors t, words i of  word[t][i] * odd(i) * odd(2**32 + t)

with words as signed integers. Factors are odd, so no single word can change without changing the sum; that
they depend on the place shows words that change places. Integer sums do not depend on the order of their
parts, so every device comes to the same number. It finds accidents; who wants to deceive it can.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

CHUNK_WORDS = 2**16
"""Words multiplied at once by a processor: half a MiB of products stays in its cache, four times as fast."""

DEVICE_CHUNK_WORDS = 2**24
"""Words multiplied at once elsewhere, where launches are what costs: 128 MiB of products."""

FIRST_TENSOR = 2**32
"""Where factors of tensors begin; a page has fewer words."""


class KVChecksum:
    """Sums pages of `elements` numbers of `dtype` per tensor, on one device."""

    def __init__(self, elements: int, *, dtype: torch.dtype, device: torch.device) -> None:
        self._word = torch.int16 if dtype.itemsize == 2 else torch.int32
        self._words = elements * dtype.itemsize // self._word.itemsize
        self._device = device
        self._factors: torch.Tensor | None = None

    def of(self, tensors: Sequence[torch.Tensor], pages: torch.Tensor) -> npt.NDArray[np.uint64]:
        """One checksum per page (int64[n], on the device) over all tensors: uint64[n]. One copy back."""
        if self._factors is None:
            self._factors = torch.from_numpy(odd(0, self._words)).to(self._device)
        sums = torch.ones(len(pages), dtype=torch.int64, device=self._device)
        chunk = CHUNK_WORDS if self._device.type == "cpu" else DEVICE_CHUNK_WORDS
        step = max(1, chunk // self._words)
        for factor, tensor in zip(odd(FIRST_TENSOR, len(tensors)).tolist(), tensors, strict=True):
            by_page = tensor.view(self._word).view(-1, self._words)
            for start in range(0, len(pages), step):
                words = by_page[pages[start : start + step]].to(torch.int64)
                sums[start : start + step] += (words * self._factors).sum(dim=1) * factor
        return sums.cpu().numpy().view(np.uint64)


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
