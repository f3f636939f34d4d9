"""Anchors: the head of a journal, kept where whoever can write the store cannot write.

A chain shows that rows were changed, removed or swapped, but not that its end was cut off, nor that the whole
journal was replaced by another one whose hashes fit. Somebody who kept its head can tell. An anchor is one
small JSON document; with an Ed25519 key it is signed, so that it may even lie beside the store: what is
signed is told in docs/format.md, "Anchors". Ed25519 (RFC 8032) comes from the `cryptography` package, the
extra `sign`; anchors without a signature need nothing.
"""

import json
import struct
from typing import TYPE_CHECKING, Any

from kvledger.core.errors import InvalidArgument, JournalError
from kvledger.journal.chain import HASH_BYTES, ChainHead

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

ANCHOR_MARK = b"KVLGA\x00\x01\x00"
ANCHOR_VERSION = 1

ANCHOR_BYTES = 4_096
"""An anchor's text is a few hundred bytes; what is longer is something else."""

_FIELDS = {"anchor", "epoch", "number", "seq", "hash"}


def write_anchor(head: ChainHead, *, private_key: bytes | None = None) -> str:
    """The anchor of `head` as JSON text, signed if the PEM text of an Ed25519 private key is given.

    Raises InvalidArgument for a key that is none, JournalError where `cryptography` is missing.
    """
    document: dict[str, Any] = {
        "anchor": ANCHOR_VERSION,
        "epoch": head.epoch,
        "number": head.number,
        "seq": head.seq,
        "hash": head.hash.hex(),
    }
    if private_key is not None:
        document["signature"] = _private(private_key).sign(signed_bytes(head)).hex()
    return json.dumps(document, indent=2)


def read_anchor(text: str | bytes) -> tuple[ChainHead, bytes | None]:
    """The head in an anchor's text, and its signature if it has one. InvalidArgument if it is no anchor."""
    if len(text) > ANCHOR_BYTES:
        raise InvalidArgument(f"an anchor has at most {ANCHOR_BYTES} bytes, this has {len(text)}")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"the anchor is no JSON: {error}") from error
    if type(found) is not dict or found.keys() - {"signature"} != _FIELDS:
        raise InvalidArgument(f"an anchor has {', '.join(sorted(_FIELDS))} and perhaps a signature")
    if found["anchor"] != ANCHOR_VERSION:
        raise InvalidArgument(f"an anchor of version {found['anchor']!r} is unknown to this version")
    epoch, number, seq = found["epoch"], found["number"], found["seq"]
    if type(epoch) is not str or not _is_count(number) or not _is_count(seq):
        raise InvalidArgument("an anchor's epoch is a text, its number and seq are integers from 0 on")
    signature = _unhex(found["signature"]) if "signature" in found else None
    link = _unhex(found["hash"])
    if len(link) != HASH_BYTES:
        raise InvalidArgument(f"an anchor's hash has {HASH_BYTES} bytes, this one {len(link)}")
    return ChainHead(epoch, number, seq, link), signature


def is_signed_by(head: ChainHead, signature: bytes | None, *, public_key: bytes) -> bool:
    """Whether `signature` over `head` was made with the private half of this PEM text.

    Raises InvalidArgument for a key that is none, JournalError where `cryptography` is missing.
    """
    key = _public(public_key)
    if signature is None:
        return False
    from cryptography.exceptions import InvalidSignature

    try:
        key.verify(signature, signed_bytes(head))
    except InvalidSignature:
        return False
    return True


def signed_bytes(head: ChainHead) -> bytes:
    """What a signature is over (docs/format.md, "Anchors")."""
    epoch = head.epoch.encode()
    return ANCHOR_MARK + struct.pack("<qqq", head.number, head.seq, len(epoch)) + epoch + head.hash


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
        raise JournalError("signing needs the package cryptography: install kvledger[sign]") from error


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _unhex(text: Any) -> bytes:
    try:
        return bytes.fromhex(text)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"{text!r} stands in an anchor where hexadecimal digits belong") from error
