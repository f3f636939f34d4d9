"""Anchors that are sent to the service: made into what a chain is held against.

A signature is checked with the key of whoever asks, so that what it is worth is theirs to judge; the service
has no key, keeps no anchor beyond its audit, and signs nothing.
"""

from kvledger.api.schemas.audits import AnchorInCheckpoint, KeptAnchorIn
from kvledger.journal.chain import Anchor, CheckpointName
from kvledger.journal.chain_check import KeptAnchor, kept_anchor


def anchor_in(given: KeptAnchorIn) -> KeptAnchor:
    """The anchor, its signature checked where a key came with it. Errors as `kept_anchor`."""
    document = given.document
    checkpoint = None
    if isinstance(document, AnchorInCheckpoint):
        checkpoint = CheckpointName(document.checkpoint_seq, bytes.fromhex(document.checkpoint_hash))
    head = Anchor(
        document.epoch,
        document.number,
        document.seq,
        bytes.fromhex(document.hash),
        checkpoint,
        document.anchor,
    )
    signature = None if document.signature is None else bytes.fromhex(document.signature)
    key = None if given.public_key is None else given.public_key.encode()
    return kept_anchor(head, signature, public_key=key)
