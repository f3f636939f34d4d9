"""A forward pass without a model: KV that says which tokens, at which position and layer, it was made for.

The code of a token is a 64-bit hash of (namespace, all tokens up to it, their positions), made per layer
by one more mixing. Its bits are cut into integers that the KV dtype holds exactly and laid over `k` and `v`,
so whoever reads a slot knows whether it holds what its own tokens call for.

The mixing is the published finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014). Adding up the mixed
(token, position) pairs gives the prefix hash: a prefix's codes are those of any longer row, and more tokens
cost only themselves.
"""

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from kvledger.core.config import KVLayout
from kvledger.tools.workload.spec import Tokens

Codes = npt.NDArray[np.uint64]
"""uint64[n], one code per token position."""

GOLDEN = np.uint64(0x9E3779B97F4A7C15)

WIDTH = {"float16": 8, "bfloat16": 8, "float32": 16, "float64": 16}
"""Bits per KV element: as many as the dtype holds exactly, rounded down to whole bytes."""


def mix(values: Codes) -> Codes:
    """A bijection on 64-bit integers that spreads every input bit over all output bits."""
    mixed = values ^ (values >> np.uint64(30))
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed


def prefix_codes(namespace: str, tokens: Tokens) -> Codes:
    """The hash of (namespace, tokens[: i + 1]) for every i. Cost: O(len(tokens)), vectorised."""
    digest = hashlib.blake2b(namespace.encode(), digest_size=8).digest()
    seed = np.frombuffer(digest, dtype="<u8")[0]
    positions = np.arange(len(tokens), dtype=np.uint64)
    pairs = (positions << np.uint64(32)) | tokens.view(np.uint32)
    return mix(np.cumsum(mix(pairs + GOLDEN)) ^ seed)


def layer_codes(codes: Codes, layer: int) -> Codes:
    """The codes of one model layer, made from a row's prefix codes."""
    salt = mix(np.array([layer + 1], dtype=np.uint64) * GOLDEN)
    return mix(codes ^ salt)


class KVCodec:
    """Lays codes over the elements of `k` and `v` as `KVLayout` shapes them."""

    def __init__(self, layout: KVLayout, device: str) -> None:
        self._shape = (layout.kv_heads, layout.head_dim)
        self._elements = layout.kv_heads * layout.head_dim
        self._device = torch.device(device)
        self._dtype: torch.dtype = getattr(torch, layout.dtype)
        width = WIDTH[layout.dtype]
        self._piece = np.dtype(f"<u{width // 8}")
        words = -(-2 * self._elements * width // 64)
        # An odd factor is a bijection, so every word differs where the code differs.
        self._factors = (np.arange(words, dtype=np.uint64) * np.uint64(2) + np.uint64(1)) * GOLDEN

    def encode(self, codes: Codes) -> tuple[torch.Tensor, torch.Tensor]:
        """`k` and `v`, each [n, kv_heads, head_dim] of the layout's dtype, on the device."""
        words = codes[:, None] * self._factors
        pieces: npt.NDArray[Any] = words.view(self._piece)[:, : 2 * self._elements]
        values = torch.from_numpy(pieces.astype(np.float32)).to(self._device, self._dtype)
        k = values[:, : self._elements].reshape(-1, *self._shape)
        v = values[:, self._elements :].reshape(-1, *self._shape)
        return k, v

    def wrong(self, k: torch.Tensor, v: torch.Tensor, codes: Codes) -> npt.NDArray[np.int64]:
        """Indices i where (k[i], v[i]) is not what codes[i] calls for. Cost: one vectorised pass."""
        expected_k, expected_v = self.encode(codes)
        if torch.equal(k, expected_k) and torch.equal(v, expected_v):
            return np.empty(0, dtype=np.int64)
        differ = ((k != expected_k) | (v != expected_v)).flatten(1).any(dim=1)
        return torch.nonzero(differ).flatten().cpu().numpy()
