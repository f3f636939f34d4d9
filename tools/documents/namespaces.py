"""What stands for a namespace where commands print one.

A namespace often names a customer, so it is a label unless it was to be revealed. The label is the same in
every command, at every seq, and in files and copies of the journal, so that two outputs can be compared. It
is keyed with the journal's epoch, which whoever has the journal knows: it keeps a name out of what is shown
around, and is no secret from who can read the journal and guess.
"""

from hashlib import blake2b

from kvledger.core.errors import InvalidArgument
from kvledger.journal import JournalInfo
from kvledger.journal.state import State

LABEL_BYTES = 6
"""Of a label: two of a million namespaces share one with a chance of one in 500."""

NAMED_AT_MOST = 20
"""Namespaces that a refusal offers."""


class Namespaces:
    """One journal's way to tell namespaces; `reveal` shows them as far as the journal's policy kept them."""

    def __init__(self, info: JournalInfo, *, reveal: bool = False) -> None:
        self._reveal = reveal
        self._key = blake2b(_bytes(info.epoch), digest_size=32).digest()

    def told(self, namespace: str) -> str:
        """What stands for a namespace; the default one is no name, and stays empty."""
        if self._reveal or not namespace:
            return namespace
        return f"ns-{blake2b(_bytes(namespace), digest_size=LABEL_BYTES, key=self._key).hexdigest()}"

    def find(self, asked: str, state: State, *, seq: int) -> str:
        """The namespace of `state`, the one at `seq`, that `asked` names or labels.

        Raises InvalidArgument, which offers those that are there. Cost: O(namespaces).
        """
        names = [name for name, tops in state.roots.items() if tops]
        if asked in names:
            return asked
        found = next((name for name in names if name and self.told(name) == asked), None)
        if found is not None:
            return found
        there = sorted(map(self.told, names))
        more = f" and {len(there) - NAMED_AT_MOST} more" if len(there) > NAMED_AT_MOST else ""
        known = ", ".join(map(repr, there[:NAMED_AT_MOST])) or "none"
        raise InvalidArgument(
            f"there is no node of namespace {asked!r} at seq {seq}; namespaces there: {known}{more}"
        )


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")
