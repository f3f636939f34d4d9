"""Journals of the store, each with where it ends and how far the service has followed it."""

from fastapi import APIRouter

from kvledger.api.cursors import decode_cursor, encode_cursor
from kvledger.api.library import Library, OpenedJournal
from kvledger.api.routes.dependencies import LIMIT, CursorParam, LibraryDep, Limit, Opened, refusals
from kvledger.api.schemas.common import Page
from kvledger.api.schemas.journals import Following, JournalOut
from kvledger.api.told.events import told_text
from kvledger.core.errors import JournalFormatError
from kvledger.journal import JournalInfo, JournalReader

router = APIRouter(prefix="/v1/journals", tags=["journals"])

NOT_FOLLOWED = Following(state="idle", seq=0, snapshots=0)
"""Of a journal that nobody has asked for yet."""


@router.get("")
def journals(library: LibraryDep, cursor: CursorParam = None, limit: Limit = LIMIT) -> Page[JournalOut]:
    """The journals of the store, oldest first."""
    after = 0 if cursor is None else decode_cursor("journals", cursor, types=(int,))[0]
    infos = [info for info in library.journals() if info.id > after]
    shown = infos[:limit]
    followed = {opened.id: opened for opened in library.followed()}
    return Page(
        items=tuple(_told(library, info, followed.get(info.id)) for info in shown),
        next=encode_cursor("journals", shown[-1].id) if len(infos) > limit else None,
    )


@router.get("/{journal}", responses=refusals(404, 409))
def journal(library: LibraryDep, opened: Opened) -> JournalOut:
    """One journal; from now on the service follows it."""
    return _told(library, opened.info, opened)


def _told(library: Library, info: JournalInfo, opened: OpenedJournal | None) -> JournalOut:
    following = NOT_FOLLOWED if opened is None else opened.timeline.following
    ends = _Ends()
    try:
        reader = library.store.reader(info.id) if opened is None else opened.reader
        ends = _Ends.of(reader)
    except JournalFormatError as error:
        # A list still shows the journals beside one that this version cannot read.
        problem = told_text(library.hide.message(str(error)))
        following = Following(state="failed", seq=0, snapshots=0, problem=problem)
    live = None if opened is None else opened.live
    return JournalOut(
        id=info.id,
        name=told_text(info.name),
        epoch=info.epoch,
        created_us=info.created_us,
        format_version=info.format_version,
        token_policy=info.token_policy,
        hidden=not library.hide.reveals,
        config=info.config,
        page_size=(info.config or {}).get("page_size"),
        first_seq=ends.first_seq,
        last_seq=ends.last_seq,
        transactions=ends.transactions,
        last_time_us=ends.last_time_us,
        live=live is not None,
        accepted_seq=None if live is None else live.last_seq,
        queued_events=None if live is None else live.queued_events,
        degraded=live is not None and live.degraded,
        dropped_events=0 if live is None else live.dropped_events,
        following=following,
    )


class _Ends:
    """Where what is stored of a journal begins and ends."""

    def __init__(self) -> None:
        self.first_seq: int | None = None
        self.last_seq: int | None = None
        self.transactions = 0
        self.last_time_us: int | None = None

    @classmethod
    def of(cls, reader: JournalReader) -> "_Ends":
        """Look both up. Cost: four look-ups."""
        ends = cls()
        head = reader.head()
        ends.transactions = head.number
        if head.seq:
            ends.first_seq, ends.last_seq = reader.beginning().seq, head.seq
        last = next(reader.find_transactions(limit=1, newest_first=True), None)
        ends.last_time_us = None if last is None else last.time_us
        return ends
