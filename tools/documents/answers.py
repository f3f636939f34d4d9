"""The service's answers about a state, asked from the command line: the same documents, without a service.

Needs the extra `api`.
"""

from kvledger.api.answers.eviction import eviction_of
from kvledger.api.answers.explain import explain
from kvledger.api.problems import Refusal
from kvledger.api.projection import Standing
from kvledger.api.schemas.common import At
from kvledger.api.schemas.pools import EvictionCandidate, EvictionOut
from kvledger.api.schemas.tree import ExplanationOut
from kvledger.core.errors import InvalidArgument
from kvledger.journal.replay import Replayed


def explanation(
    replayed: Replayed, tokens: bytes, *, namespace: str | None, at: int | None
) -> ExplanationOut:
    """Why `tokens` (int32, little-endian) do not match for longer in a namespace of the state; None is one
    that is not there.

    Raises InvalidArgument where the journal keeps no tokens.
    """
    try:
        return explain(_standing(replayed, at), tokens, namespace=namespace)
    except Refusal as refusal:
        raise InvalidArgument(refusal.detail) from refusal


def next_evicted(replayed: Replayed, *, swa: bool, limit: int, at: int | None) -> EvictionOut:
    """The next `limit` nodes that eviction would take from the Full pool, or from the SWA pool."""
    return eviction_of(_standing(replayed, at), "swa" if swa else "full", limit=limit)


def candidate_line(one: EvictionCandidate) -> str:
    """A node that would go, as one line of text."""
    what = "becomes a tombstone" if one.action == "tombstone" else "is deleted"
    told = [
        f"{count:,} {pool}" for count, pool in ((one.full_tokens, "Full"), (one.swa_tokens, "SWA")) if count
    ]
    inside = ", inside a window" if one.outside_windows is False else ""
    return f"node {one.node} [{one.start:,}, {one.end:,}) {what}{inside}: {' and '.join(told)} tokens"


def _standing(replayed: Replayed, at: int | None) -> Standing:
    settled = at is not None and at <= replayed.seq
    return Standing(
        replayed.state, At(asked=at, seq=replayed.seq, transaction=replayed.transaction, settled=settled)
    )
