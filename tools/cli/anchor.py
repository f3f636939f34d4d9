"""`kvledger anchor`: the head of a journal, to be kept where nobody who writes the store can write."""

import os
from pathlib import Path
from typing import Annotated

import typer

from kvledger.core.errors import InvalidArgument
from kvledger.tools.cli.output import OK, JsonOption, read_small_file
from kvledger.tools.cli.stored import JournalOption

PRIVATE_MODE = 0o600
"""A private key is its owner's to read."""


def anchor_command(
    database: Annotated[
        str | None, typer.Argument(metavar="DATABASE", help="The database, by URL or path.")
    ] = None,
    journal: JournalOption = None,
    sign: Annotated[
        Path | None, typer.Option("--sign", help="Ed25519 private key, PEM: the anchor is signed with it.")
    ] = None,
    new_key: Annotated[
        Path | None,
        typer.Option("--new-key", help="Make a key pair instead: FILE and, public, FILE.pub."),
    ] = None,
    as_json: Annotated[bool, JsonOption] = True,
) -> int:
    """Print seq, transaction, hash and epoch of a journal's end, and its newest checkpoint: always as JSON.

    `kvledger audit DATABASE --anchor FILE` tells later whether that end is still there.
    """
    from kvledger.journal import Journal
    from kvledger.journal.anchor import write_anchor

    if new_key is not None:
        if database is not None or sign is not None:
            raise InvalidArgument("--new-key makes a key and nothing else: give no database and no --sign")
        _make_key(new_key)
        return OK
    if database is None:
        raise InvalidArgument("name the database whose journal is to be anchored")
    private_key = None if sign is None else read_small_file(sign, what="private key")
    with Journal.open(database, create=False) as store:
        kept = store.reader(journal).anchor()
    typer.echo(write_anchor(kept, private_key=private_key))
    return OK


def _make_key(path: Path) -> None:
    from kvledger.journal.anchor import new_key

    private_key, public_key = new_key()
    for file, text, mode in ((path, private_key, PRIVATE_MODE), (_public(path), public_key, 0o644)):
        try:
            # Neither file may be there: a key that was overwritten is a key that is lost.
            handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        except OSError as error:
            raise InvalidArgument(f"the key cannot be written: {error}") from error
        with os.fdopen(handle, "wb") as made:
            made.write(text)
    typer.echo(f"{path}\n{_public(path)}")


def _public(path: Path) -> Path:
    return path.with_name(path.name + ".pub")
