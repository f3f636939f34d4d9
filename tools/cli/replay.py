"""`kvledger replay`: a journal's state at any seq, in figures."""

from typing import Annotated

from kvledger.tools.cli.output import OK, JsonOption
from kvledger.tools.cli.stored import AtOption, DatabaseArgument, ExportedOption, JournalOption, replay_stored
from kvledger.tools.cli.tables import show_document


def replay_command(
    database: DatabaseArgument,
    at: AtOption = None,
    journal: JournalOption = None,
    exported: ExportedOption = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> int:
    """Rebuild the state at a seq from events, after the nearest checkpoint; print its figures and digest."""
    from kvledger.tools.documents.replayed import picture_state

    show_document(picture_state(replay_stored(database, journal, at, exported=exported)), as_json=as_json)
    return OK
