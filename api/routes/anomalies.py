"""What somebody should look at: refused and failed operations, what a reset cut short, events not stored."""

from fastapi import APIRouter

from kvledger.api.routes.dependencies import LIMIT, OF_A_JOURNAL, CursorParam, Limit, Opened, TellerDep
from kvledger.api.routes.lists import OrderParam, Place, SeqParam, missing_before, page_of
from kvledger.api.schemas.common import Page
from kvledger.api.schemas.events import AnomalyOut
from kvledger.journal.lookups.history import anomalies as find_anomalies

router = APIRouter(prefix="/v1/journals/{journal}/anomalies", tags=["events"], responses=OF_A_JOURNAL)


@router.get("")
def anomalies(
    opened: Opened,
    teller: TellerDep,
    first_seq: SeqParam = None,
    last_seq: SeqParam = None,
    order: OrderParam = "asc",
    cursor: CursorParam = None,
    limit: Limit = LIMIT,
) -> Page[AnomalyOut]:
    """Events that somebody should look at, each with a sentence that says why."""
    place = Place.of("anomalies", cursor, order)
    found = find_anomalies(
        opened.reader,
        first_seq=first_seq,
        last_seq=last_seq,
        limit=limit + 1,
        after_seq=place.after,
        before_seq=place.before,
        newest_first=place.newest_first,
    )
    return page_of(
        place,
        found,
        limit=limit,
        number=lambda one: one[0].seq,
        tell=lambda one: teller.anomaly(*one),
        not_here_before=lambda: missing_before(opened, first_seq=first_seq),
    )
