"""Token policies: what a store keeps of tokens and namespaces, which are private data.

    full   tokens and namespaces as they are
    hash   for each node the keyed hash of everything from its namespace to its end; names keyed likewise
    none   nothing of tokens; namespaces under a random key of this recording that nobody keeps

The operator's key is never stored, and nothing can be looked up without it; with it, equal prefixes have
equal hashes over all journals. A hash is that of its prefix however the tree is cut, because it is chained
page by page (BLAKE2b, 16 bytes, docs/format.md "Token policies"): cache and writer come to the same one
whether a node was split before or after.

Checksums of KV tell tokens too, to whoever has the model and computes the KV of a guess. Under "hash" and
"none" each is stored as a keyed hash of itself and its page: equal ones of one page stay equal, which is all
that an audit asks.

What the writer does with them is in stored_tokens.py.
"""

import secrets
from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b
from typing import Literal, cast, get_args

import numpy as np

from kvledger.core.errors import InvalidArgument, JournalError
from kvledger.core.events import CacheOpened, Pages, Sums

TokenPolicy = Literal["full", "hash", "none"]
TOKEN_POLICIES: tuple[str, ...] = get_args(TokenPolicy)

TOKEN_BYTES = 4
"""Width of a token in an event: int32."""

POLICY_SETTING = "token_policy"
"""Where the config in `cache_opened` names a policy other than "full", so that events alone can be read."""

HASH_BYTES = 16
"""Of each prefix hash: two of 2^64 prefixes may collide, which no journal comes near."""

KEY_BYTES = range(16, 65)
"""Lengths of an operator's key: below 16 it can be guessed, BLAKE2b takes no more than 64."""

NAMES_KEPT = 4_096
"""Namespaces whose hash is remembered; it is one hash to find another."""

_PAGE = b"kvledger page"
_SEED = b"kvledger seed"
_NAME = b"kvledger name"
_SUMS = {"full": b"kvledger full kv", "swa": b"kvledger swa kv"}


class HashedTokens:
    """The form of "hash". `node` needs to know the page size: `open_with` tells it before the first node."""

    def __init__(self, key: bytes) -> None:
        self._page = blake2b(digest_size=HASH_BYTES, key=key, person=_PAGE)
        self._page_bytes = 0
        self.namespace: Callable[[str], str] = _named(key)
        self.sums = _summed(key)
        self._seed_key = key

    def open_with(self, page_bytes: int) -> None:
        """Set the bytes of tokens in a page, the unit of the chain."""
        self._page_bytes = page_bytes

    def seed(self, namespace: str) -> bytes:
        """The hash that a namespace's first page continues from."""
        return blake2b(
            namespace.encode(errors="surrogatepass"),
            digest_size=HASH_BYTES,
            key=self._seed_key,
            person=_SEED,
        ).digest()

    def node(self, above: bytes, tokens: bytes) -> bytes:
        """The hash of the prefix that ends with `tokens`, whole pages. O(pages), about a microsecond each."""
        size = self._page_bytes
        if not size:
            raise JournalError("tokens cannot be hashed before cache_opened says how large a page is")
        start = self._page.copy
        for at in range(0, len(tokens), size):
            link = start()
            link.update(above)
            link.update(tokens[at : at + size])
            above = link.digest()
        return above


class NoTokens:
    """The form of "none". Its `key` is drawn, and known to nobody, but where two processes share one form."""

    def __init__(self, key: bytes | None = None) -> None:
        self.key = secrets.token_bytes(32) if key is None else key
        self.namespace: Callable[[str], str] = _named(self.key)
        self.sums = _summed(self.key)

    def seed(self, namespace: str) -> bytes:
        """Nothing."""
        return b""

    def node(self, above: bytes, tokens: bytes) -> bytes:
        """Nothing."""
        return b""


def _named(key: bytes) -> Callable[[str], str]:
    @lru_cache(maxsize=NAMES_KEPT)
    def name(namespace: str) -> str:
        text = namespace.encode(errors="surrogatepass")
        return blake2b(text, digest_size=HASH_BYTES, key=key, person=_NAME).hexdigest()

    return name


def _summed(key: bytes) -> Callable[[Pages, Sums, Literal["full", "swa"]], Sums]:
    """What stands for the checksums of one pool's KV beside these Full pages. A microsecond each."""

    def hashed(pages: Pages, sums: Sums, pool: Literal["full", "swa"]) -> Sums:
        texts = np.stack((pages.astype("<u8"), sums.astype("<u8")), axis=1)
        person = _SUMS[pool]
        digests = [blake2b(text, digest_size=8, key=key, person=person).digest() for text in texts]
        return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64, copy=False)

    return hashed


def check_policy(policy: str, key: bytes | None) -> None:
    """Raise InvalidArgument unless `policy` is one and `key` is given exactly where it needs one."""
    if type(policy) is not str or policy not in TOKEN_POLICIES:
        raise InvalidArgument(f"tokens is one of {', '.join(TOKEN_POLICIES)}, not {policy!r}")
    if policy != "hash":
        if key is not None:
            raise InvalidArgument(f'a key belongs to tokens="hash", not to {policy!r}')
        return
    if key is None:
        raise InvalidArgument('tokens="hash" needs a key')
    if type(key) is not bytes or len(key) not in KEY_BYTES:
        held = f"{len(key)} of them" if type(key) is bytes else f"a {type(key).__name__} instead"
        raise InvalidArgument(
            f"a token key is {KEY_BYTES.start} to {KEY_BYTES.stop - 1} bytes, and here is {held}"
        )


def policy_of(opened: CacheOpened) -> TokenPolicy:
    """The policy a journal was written under. Raises JournalError for one that is unknown here."""
    policy = opened.config.get(POLICY_SETTING, "full")
    if policy not in TOKEN_POLICIES:
        raise JournalError(f"the token policy {policy!r} is unknown to this version")
    return cast("TokenPolicy", policy)
