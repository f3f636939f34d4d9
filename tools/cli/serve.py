"""`kvledger serve`: look into a stored journal over HTTP, also while it is recorded."""

from pathlib import Path
from typing import Annotated, Any

import typer

from kvledger.core.errors import InvalidArgument
from kvledger.tools.cli.output import INTERRUPTED, OK
from kvledger.tools.cli.stored import JournalOption, StoreArgument

EVERYWHERE = "kvledger: it listens at every address of this machine ({}); from elsewhere, name the machine"
EMPTY = "kvledger: this database holds no journal yet; the page shows the first one as soon as it is begun"
EXTRA = "the service needs more packages: pip install 'kvledger[api]' ({} is missing)"


def serve_command(
    database: StoreArgument,
    host: Annotated[
        str | None, typer.Option("--host", help="Where to listen. Default: 127.0.0.1; another needs a token.")
    ] = None,
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65_535, help="Default: 8470; 0 takes a free one.")
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", help="File whose first line is the token. Or KVLEDGER_TOKEN."),
    ] = None,
    reveal_tokens: Annotated[
        bool | None,
        typer.Option("--reveal-tokens", help="Show token ids and namespaces, as far as they were kept."),
    ] = None,
    journal: JournalOption = None,
) -> int:
    """Serve the page, the API and the metrics of a database until Ctrl-C. No journal is ever changed.

    --journal names the journal to follow from the start. Settings can stand in the environment too, as
    KVLEDGER_HOST, KVLEDGER_PORT, KVLEDGER_TOKEN and so on.

    It prints the address at which it can be opened on this machine.

    Exit status: 0 ended, 2 could not run, 130 interrupted.
    """
    try:
        from kvledger.api import ApiSettings, create_app
        from kvledger.api.library import Library
        from kvledger.api.serving import Service
        from kvledger.api.settings import read_token
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "kvledger":
            raise
        raise InvalidArgument(EXTRA.format(error.name)) from error
    from kvledger.journal import Journal

    given: dict[str, Any] = {"host": host, "port": port, "reveal_tokens": reveal_tokens}
    if token_file is not None:
        given["token"] = read_token(token_file)
    settings = ApiSettings(**{name: value for name, value in given.items() if value is not None})
    with Journal.open(database, create=False) as store:
        is_empty = not store.list()
        if journal is not None:
            # A journal that is not there is told now, not to the first who asks for it.
            store.reader(journal)
        library = Library(
            store,
            first=journal,
            reveal_tokens=settings.reveal_tokens,
            followed=settings.followed_journals,
        )
        service = Service(create_app(settings, library))
        typer.echo(service.listen())
        if service.is_everywhere:
            typer.echo(EVERYWHERE.format(settings.host), err=True)
        if is_empty:
            typer.echo(EMPTY, err=True)
        service.run()
    return INTERRUPTED if service.was_interrupted else OK
