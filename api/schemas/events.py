"""Events and anomalies as the service tells them; the payload of each kind is in `payloads.py`."""

from kvledger.api.schemas.common import Answer
from kvledger.api.schemas.payloads import Payload


class EventOut(Answer):
    """One event. `node` and `request` are whom it is about, where it is about one; `data` its own facts.

    `sentence` says what happened in a line, for a person.
    """

    seq: int
    undone: bool
    transaction: int
    op: str
    time_us: int
    node: int | None
    request: str | None
    sentence: str
    data: Payload


class AnomalyOut(Answer):
    """Something somebody should look at, and why."""

    sentence: str
    event: EventOut


class TenureOut(Answer):
    """A page in one pair of hands, from seq `since` until seq `until` (None: still).

    `holder` "node" names the node and the token `position` of the slot asked for; `beside` is the slot of the
    other pool that stood beside it when it began.
    """

    since: int
    since_us: int | None
    until: int | None
    until_us: int | None
    holder: str
    request: str | None
    node: int | None
    position: int | None
    beside: int | None
    began: str
    ended: str | None
    cause: str | None
