"""Anchors: the head of a journal, kept where whoever can write the store cannot write.

A chain shows that rows were changed, removed or swapped, but not that its end was cut off, nor that the whole
journal was replaced by another one whose hashes fit. Somebody who kept its head can tell. An anchor also
names the newest checkpoint, which no transaction of the journal names yet; anchors of version 1 name none and
are still read.

An anchor is one small JSON document; with an Ed25519 key it is signed, so that it may even lie beside the
store: what is signed is told in docs/format.md, "Anchors". Ed25519 (RFC 8032) comes from the `cryptography`
package, the extra `sign`; anchors without a signature need nothing.
"""

import json
import struct
from typing import TYPE_CHECKING, Any

from kvledger.core.errors import InvalidArgument, JournalError
from kvledger.journal.chain import CHECKPOINT_HASH_BYTES, HASH_BYTES, Anchor, CheckpointName

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

ANCHOR_MARKS = {1: b"KVLGA\x00\x01\x00", 2: b"KVLGA\x00\x02\x00"}
"""What is signed begins with this, by the version of the anchor."""

ANCHOR_BYTES = 4_096
"""An anchor's text is a few hundred bytes; what is longer is something else."""

_FIELDS = {
    1: {"anchor", "epoch", "number", "seq", "hash"},
    2: {"anchor", "epoch", "number", "seq", "hash", "checkpoint_seq", "checkpoint_hash"},
}


def write_anchor(anchor: Anchor, *, private_key: bytes | None = None) -> str:
    """An anchor as JSON text, signed if the PEM text of an Ed25519 private key is given.

    Raises InvalidArgument for a key that is none, JournalError where `cryptography` is missing.
    """
    document: dict[str, Any] = {
        "anchor": anchor.version,
        "epoch": anchor.epoch,
        "number": anchor.number,
        "seq": anchor.seq,
        "hash": anchor.hash.hex(),
    }
    if anchor.version > 1:
        kept = anchor.checkpoint
        document["checkpoint_seq"] = None if kept is None else kept.seq
        document["checkpoint_hash"] = None if kept is None else kept.hash.hex()
    if private_key is not None:
        document["signature"] = _private(private_key).sign(signed_bytes(anchor)).hex()
    return json.dumps(document, indent=2)


def read_anchor(text: str | bytes) -> tuple[Anchor, bytes | None]:
    """The anchor in a text, and its signature if it has one. InvalidArgument if it is no anchor."""
    if len(text) > ANCHOR_BYTES:
        raise InvalidArgument(f"an anchor has at most {ANCHOR_BYTES} bytes, this has {len(text)}")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"the anchor is no JSON: {error}") from error
    version = found.get("anchor") if type(found) is dict else None
    if type(version) is not int:
        raise InvalidArgument("an anchor is a JSON object whose `anchor` is its version")
    fields = _FIELDS.get(version)
    if fields is None:
        raise InvalidArgument(f"an anchor of version {version} is unknown to this version")
    if found.keys() - {"signature"} != fields:
        raise InvalidArgument(f"an anchor has {', '.join(sorted(fields))} and perhaps a signature")
    epoch, number, seq = found["epoch"], found["number"], found["seq"]
    if not _is_text(epoch) or not _is_count(number) or not _is_count(seq):
        raise InvalidArgument("an anchor's epoch is a text, its number and seq are integers from 0 on")
    signature = _unhex(found["signature"]) if "signature" in found else None
    link = _unhex(found["hash"])
    if len(link) != HASH_BYTES:
        raise InvalidArgument(f"an anchor's hash has {HASH_BYTES} bytes, this one {len(link)}")
    return Anchor(epoch, number, seq, link, _checkpoint_in(found), version), signature


def _checkpoint_in(found: dict[str, Any]) -> CheckpointName | None:
    seq, digits = found.get("checkpoint_seq"), found.get("checkpoint_hash")
    if seq is None and digits is None:
        return None
    stored = _unhex(digits)
    if type(seq) is not int or not _is_count(seq) or len(stored) != CHECKPOINT_HASH_BYTES:
        raise InvalidArgument(
            f"an anchor's checkpoint has a seq and a hash of {CHECKPOINT_HASH_BYTES} bytes, or neither"
        )
    return CheckpointName(seq, stored)


def is_signed_by(anchor: Anchor, signature: bytes | None, *, public_key: bytes) -> bool:
    """Whether `signature` over `anchor` was made with the private half of this PEM text.

    Raises InvalidArgument for a key that is none, JournalError where `cryptography` is missing.
    """
    key = _public(public_key)
    if signature is None:
        return False
    from cryptography.exceptions import InvalidSignature

    try:
        key.verify(signature, signed_bytes(anchor))
    except InvalidSignature:
        return False
    return True


def signed_bytes(anchor: Anchor) -> bytes:
    """What a signature is over (docs/format.md, "Anchors")."""
    epoch = anchor.epoch.encode()
    place = struct.pack("<qqq", anchor.number, anchor.seq, len(epoch))
    signed = ANCHOR_MARKS[anchor.version] + place + epoch + anchor.hash
    if anchor.version == 1:
        return signed
    seq, stored = anchor.checkpoint or (-1, b"")
    return signed + struct.pack("<q", seq) + stored


def new_key() -> tuple[bytes, bytes]:
    """A new Ed25519 key as two PEM texts, private (PKCS 8, not encrypted) and public."""
    _need_cryptography()
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    return (
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        ),
    )


def _private(pem: bytes) -> "Ed25519PrivateKey":
    _need_cryptography()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise InvalidArgument(f"that is no private key in PEM without a password: {error}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise InvalidArgument(f"anchors are signed with an Ed25519 key, not with a {type(key).__name__}")
    return key


def _public(pem: bytes) -> "Ed25519PublicKey":
    _need_cryptography()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(pem)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise InvalidArgument(f"that is no public key in PEM: {error}") from error
    if not isinstance(key, Ed25519PublicKey):
        raise InvalidArgument(f"anchors are signed with an Ed25519 key, not with a {type(key).__name__}")
    return key


def _need_cryptography() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError as error:
        raise JournalError("signing needs the package cryptography: pip install 'kvledger[sign]'") from error


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _is_text(value: Any) -> bool:
    """Whether it is a text that can be signed: JSON may hold halves of surrogate pairs, no UTF-8 does."""
    return type(value) is str and value.isprintable()


def _unhex(text: Any) -> bytes:
    try:
        return bytes.fromhex(text)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"{text!r} stands in an anchor where hexadecimal digits belong") from error
