"""Options of commands whose answers come in pages, and what they say of the rest of an answer."""

from collections.abc import Sized
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from kvledger.tools.documents.lookups import Page, UnseenDocument

LIMIT = 100
"""Events of one answer, unless more are asked for."""

LARGEST_LIMIT = 10_000
"""More than anybody reads; an export is for that."""

LimitOption = Annotated[int, typer.Option("--limit", min=1, max=LARGEST_LIMIT, help="How many at most.")]
FromOption = Annotated[int | None, typer.Option("--from", min=1, help="First seq to look at.")]
ToOption = Annotated[int | None, typer.Option("--to", min=1, help="Last seq to look at.")]
AfterOption = Annotated[
    int | None,
    typer.Option("--after", min=0, help="Go on after this one: what an answer with more to come names."),
]
BeforeOption = Annotated[
    int | None, typer.Option("--before", min=0, help="The same with --newest-first: only what is before it.")
]
NewestOption = Annotated[bool, typer.Option("--newest-first", help="From the end of the journal on.")]


def from_or_after(first: int | None, after: int | None) -> int | None:
    """The first seq that --from and --after leave to look at."""
    return first if after is None else max(after + 1, first or 1)


RevealOption = Annotated[
    bool,
    typer.Option(
        "--reveal-tokens",
        help="Show token ids, namespaces and words that may quote them, if they were kept.",
    ),
]


def say_nothing(found: Sized, sentence: str) -> None:
    """On stderr, where nothing was found: that it is so, and no answer that got lost."""
    if not found:
        typer.echo(sentence, err=True)


def say_rest(page: "Page", *, newest_first: bool = False) -> None:
    """On stderr: with which option the answer goes on, and which part of it is not stored here."""
    if page.next is not None:
        typer.echo(f"there are more: --{'before' if newest_first else 'after'} {page.next}", err=True)
    say_unseen(page.unseen)


def say_unseen(unseen: "UnseenDocument | None") -> None:
    """On stderr: which part of an answer is not stored here, and where to look."""
    if unseen is not None:
        typer.echo(unseen.sentence, err=True)
