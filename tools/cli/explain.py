"""`kvledger explain`: why a prompt did not match for longer."""

import re
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from kvledger.core.errors import InvalidArgument
from kvledger.tools.cli.extras import needs_api
from kvledger.tools.cli.output import OK, JsonOption, print_json
from kvledger.tools.cli.paging import RevealOption
from kvledger.tools.cli.stored import AtOption, DatabaseArgument, ExportedOption, JournalOption, replay_source

LARGEST_FILE_BYTES = 64 * 1024 * 1024
"""Several million tokens, more than a context holds; a wrong path may lead to what fits no memory."""

NODES_SHOWN = 16
"""Nodes of the path that fit a line; --json has more."""

INT32 = np.iinfo(np.int32)


def explain_command(
    database: DatabaseArgument,
    tokens: Annotated[list[str] | None, typer.Argument(help="The prompt's token ids.")] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", help="File with the token ids instead: numbers, or a list in JSON."),
    ] = None,
    namespace: Annotated[
        str, typer.Option("--namespace", help="Its name, or the label that other commands show.")
    ] = "",
    at: AtOption = None,
    reveal: RevealOption = False,
    journal: JournalOption = None,
    exported: ExportedOption = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> int:
    """How much of a prompt matches at a seq, and why no more. Needs the extra `api`.

    Tokens are compared, so it takes a journal that keeps them. Nothing is shown of them.
    """
    with needs_api("explain"):
        from kvledger.tools.documents.answers import explanation
    from kvledger.tools.documents.namespaces import Namespaces
    from kvledger.tools.reading.sources import open_source

    asked = _asked(tokens, file)
    with open_source(database, journal, exported=exported) as opened:
        replayed = replay_source(opened.source, at)
        names = Namespaces(opened.source.info, reveal=reveal)
    # In an empty tree nothing matches, whatever was named; in any other a wrong name is offered those there.
    named = names.find(namespace, replayed.state, seq=replayed.seq) if replayed.state.nodes else None
    found = explanation(replayed, asked, namespace=named, at=at)
    if as_json:
        print_json(found)
        return OK
    typer.echo(f"seq {found.at.seq}: {found.sentence}")
    if found.path:
        shown = ", ".join(map(str, found.path[:NODES_SHOWN]))
        more = "" if len(found.path) <= NODES_SHOWN else f", ... ({len(found.path)} nodes)"
        typer.echo(f"path: {shown}{more}")
    return OK


def _asked(tokens: list[str] | None, file: Path | None) -> bytes:
    """The token ids as int32, little-endian. Raises InvalidArgument for what is no list of them."""
    if (file is None) == (not tokens):
        raise InvalidArgument("name the prompt's tokens one way: as arguments, or with --file")
    words = tokens if file is None else _words_of(file)
    numbers = [_token(word) for word in words or ()]
    return np.array(numbers, "<i4").tobytes()


def _words_of(file: Path) -> list[str]:
    try:
        with file.open("rb") as opened:
            data = opened.read(LARGEST_FILE_BYTES + 1)
    except OSError as error:
        raise InvalidArgument(f"the tokens cannot be read: {error}") from error
    if len(data) > LARGEST_FILE_BYTES:
        raise InvalidArgument(f"{file} has more than {LARGEST_FILE_BYTES} bytes: that is no prompt")
    text = data.decode(errors="replace").strip()
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
    words = [word for word in re.split(r"[\s,]+", text) if word]
    if not words:
        raise InvalidArgument(f"{file} names no token")
    return words


def _token(word: str) -> int:
    try:
        token = int(word)
    except ValueError as error:
        raise InvalidArgument(f"{word[:40]!r} is no token id") from error
    if not INT32.min <= token <= INT32.max:
        raise InvalidArgument(f"token {word[:40]} is outside int32")
    return token
