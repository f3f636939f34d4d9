"""Pages of lists: what was pruned is asked once the items were taken."""

from collections.abc import Iterator

from kvledger.api.routes.lists import Place, page_of


def test_a_prune_while_a_page_is_read_is_told() -> None:
    beginning: list[int | None] = [None]

    def items() -> Iterator[int]:
        yield 7
        beginning[0] = 41
        yield 41

    page = page_of(
        Place.of("events", None, "asc"),
        items(),
        limit=5,
        number=int,
        tell=str,
        not_here_before=lambda: beginning[0],
    )
    assert (page.items, page.not_here_before) == (("7", "41"), 41)
