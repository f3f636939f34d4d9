"""What of private data leaves the service: token ids, namespaces, and words that may quote them.

Unless the service was started to reveal them, a namespace is told as a label, tokens and checksums of their
KV as their count.
Labels are stable while the process lives and cannot be turned back: they are keyed with random bytes that
nobody keeps. Free text (the message of an exception, a caller's reason, the name of a caller's transaction)
may quote tokens and is withheld, as the token policies of the journal do.
"""

import ast
import re
import secrets
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import numpy as np

from kvledger.api.schemas.common import Checksums, Tokens
from kvledger.core.events import RollbackCause, Sums
from kvledger.journal.state import State
from kvledger.journal.stored_tokens import OWN_OPS, WITHHELD
from kvledger.journal.tokens import TOKEN_BYTES

TOKENS_SHOWN = 4_096
"""Token ids that one answer reveals of a run: more than a person reads; an export has them all."""

SUMS_SHOWN = 1_000
"""Checksums that one answer reveals of an array."""

LABEL_BYTES = 6
"""Of a namespace's label: two of a million namespaces share one with a chance of one in 500."""

_QUOTED = re.compile(
    r"""(request |pip install (?='kvledger\[\w+\]'))?(?<!\w)"""
    r"""(b?(?:'(?:[^'\\]|\\.)*(?:'|$)|"(?:[^"\\]|\\.)*(?:"|$)))""",
    re.DOTALL,
)
"""A quoted text as `repr` writes it, cut or whole, and whether it is the name of a request or an
extra that is to be installed. An apostrophe inside a word begins none."""

KNOWN_OPS = OWN_OPS | {"events_dropped"}
"""Names of transactions that are the cache's or the recorder's own; any other is a caller's text."""


class Hiding:
    """One service's way to tell private data; `reveals` says that it hides nothing that was kept."""

    def __init__(self, *, reveals: bool, key: bytes | None = None, mark: str | None = None) -> None:
        self.reveals = reveals
        self._key = secrets.token_bytes(32) if key is None else key
        # Answers with labels of another process must not be taken for this one's.
        self.mark = ("revealed" if reveals else secrets.token_hex(8)) if mark is None else mark

    def shared(self) -> dict[str, Any]:
        """What another process of the same service needs to tell the same by the same labels: a secret."""
        return {"reveals": self.reveals, "key": self._key.hex(), "mark": self.mark}

    @classmethod
    def of(cls, shared: Mapping[str, Any]) -> "Hiding":
        """The hiding that `shared` is of."""
        return cls(reveals=shared["reveals"], key=bytes.fromhex(shared["key"]), mark=shared["mark"])

    def namespace(self, namespace: str) -> str:
        """What stands for a namespace: itself where revealed (under a token policy, what that kept of it)."""
        if self.reveals or not namespace:
            return namespace
        text = namespace.encode(errors="surrogatepass")
        return "ns-" + blake2b(text, digest_size=LABEL_BYTES, key=self._key).hexdigest()

    def namespace_named(self, label: str, state: State) -> str | None:
        """The namespace of `state` that `label` stands for; None where there is none. O(namespaces)."""
        if self.reveals or not label:
            return label if label in state.roots else None
        return next((name for name in state.roots if self.namespace(name) == label), None)

    def absence(self, label: str) -> str:
        """What a person is told who named a namespace by a label that stands for none."""
        if not label:
            return "the default namespace holds nothing at this seq"
        hint = "" if self.reveals else "; this service hides names and knows namespaces by their labels alone"
        return f"no namespace of this name is in the tree at this seq{hint}"

    def tokens(self, kept: bytes, policy: str, *, count: int | None = None) -> Tokens:
        """Tokens of which a journal of this `policy` kept these bytes; `count` where the bytes do not say."""
        stored = len(kept) // TOKEN_BYTES if policy == "full" else 0
        total = stored if count is None else count
        if not self.reveals or policy != "full" or not stored:
            return Tokens(count=total)
        return Tokens(count=total, ids=tuple(np.frombuffer(kept, "<i4", min(stored, TOKENS_SHOWN)).tolist()))

    def sums(self, sums: Sums) -> Checksums:
        """Checksums of KV: whoever has the model can try tokens until theirs are the same."""
        if not self.reveals:
            return Checksums(count=len(sums))
        return Checksums(count=len(sums), sums=tuple(f"{one:016x}" for one in sums[:SUMS_SHOWN].tolist()))

    def op(self, op: str) -> str:
        """The name of a transaction, where it cannot quote tokens."""
        return op if self.reveals or op in KNOWN_OPS else WITHHELD

    def may_ask_for(self, op: str) -> bool:
        """Whether a filter may name this op: who may not see a name may not guess it either."""
        return self.reveals or op in KNOWN_OPS

    def message(self, message: str) -> str:
        """What the journal says of itself: what it quotes may be anything that stands in a damaged cell.

        Quoted texts are told as namespaces are, but for names of requests and of our own extras, which
        are not private.
        """
        if self.reveals:
            return message
        return _QUOTED.sub(lambda found: found[0] if found[1] else self._labelled(found[2]), message)

    def _labelled(self, quoted: str) -> str:
        try:
            text = str(ast.literal_eval(quoted))
        except (SyntaxError, ValueError):
            # An apostrophe of the sentence itself, or a text that was cut: hidden as it stands.
            text = quoted
        return repr(self.namespace(text))

    def reason(self, reason: str, cause: str) -> str:
        """Why something was undone: lengths from the cache itself, else no more than an exception's name."""
        if self.reveals or cause in (RollbackCause.REFUSED, RollbackCause.SKIPPED):
            return reason
        name = reason.partition(":")[0]
        if cause == RollbackCause.ERROR and name.isidentifier():
            return name
        return reason and WITHHELD
