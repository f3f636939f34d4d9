"""Found events, transactions and anomalies as the service's schema objects, with what is private hidden."""

from typing import Any

import numpy as np

from kvledger.api.library import Library, OpenedJournal
from kvledger.api.schemas.common import OriginOut
from kvledger.api.schemas.events import AnomalyOut, EventOut
from kvledger.api.schemas.journals import TransactionOut
from kvledger.api.schemas.payloads import PAYLOADS, Payload, told_fields
from kvledger.api.told.hiding import Hiding
from kvledger.api.told.runs import runs_of
from kvledger.api.told.sentences import sentence_of
from kvledger.core.events import Event, NodeCreated, Origin, RolledBack
from kvledger.journal import FoundEvent, FoundTransaction


class Teller:
    """Tells the events of one journal: of its token policy, and as far as `hide` lets anything be seen."""

    def __init__(self, hide: Hiding, *, policy: str, page_size: int | None) -> None:
        self.hide = hide
        self._policy = policy
        self._page_size = page_size

    @classmethod
    def of(cls, library: Library, opened: OpenedJournal) -> "Teller":
        """The teller of an opened journal."""
        config = opened.info.config or {}
        return cls(library.hide, policy=opened.info.token_policy, page_size=config.get("page_size"))

    def event(self, found: FoundEvent) -> EventOut:
        """One event at its place."""
        event: Any = found.event
        request = getattr(event, "request_id", None) or getattr(event, "owner", None)
        undone = " (undone since)" if found.undone else ""
        return EventOut(
            seq=found.seq,
            undone=found.undone,
            transaction=found.transaction,
            op=self.hide.op(found.op),
            time_us=found.time_us,
            node=getattr(event, "node", None),
            request=None if request is None else told_text(request),
            sentence=told_text(self._sentence(event)) + undone,
            data=self.payload(event),
        )

    def anomaly(self, found: FoundEvent, sentence: str) -> AnomalyOut:
        """An event that somebody should look at; `sentence` may end in a reason, which may be private."""
        event = found.event
        if isinstance(event, RolledBack):
            sentence = self._sentence(event)
        return AnomalyOut(sentence=told_text(sentence), event=self.event(found))

    def transaction(self, found: FoundTransaction) -> TransactionOut:
        """One transaction without its events."""
        cause = "error" if found.rolled_back else "caller"
        return TransactionOut(
            number=found.number,
            op=told_text(self.hide.op(found.op)),
            request=None if found.request_id is None else told_text(found.request_id),
            status="rolled_back" if found.rolled_back else "committed",
            reason=told_text(self.hide.reason(found.reason, cause)),
            time_us=found.time_us,
            duration_us=found.duration_us,
            first_seq=found.first_seq,
            events=found.event_count,
        )

    def _sentence(self, event: Event) -> str:
        """What an event says, with the reason why something was undone as far as that may be seen."""
        sentence = sentence_of(event)
        if isinstance(event, RolledBack):
            reason = self.hide.reason(event.reason, event.cause)
            sentence += f" ({reason})" if reason else ""
        return sentence

    def payload(self, event: Event) -> Payload:
        """The facts of one event. Cost: O(elements of its arrays)."""
        told = {name: self._value(event, name, getattr(event, name)) for name in told_fields(type(event))}
        return PAYLOADS[event.kind](**told)

    def _value(self, event: Event, name: str, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return self.hide.sums(value) if value.dtype == np.uint64 else runs_of(value)
        if isinstance(value, bytes):
            return self.hide.tokens(value, self._policy, count=self._tokens_of(event))
        if isinstance(value, Origin):
            request = value.request_id
            return OriginOut(request=None if request is None else told_text(request), epoch=value.epoch)
        if name == "namespace":
            return told_text(self.hide.namespace(value))
        if isinstance(event, RolledBack) and name == "reason":
            return told_text(self.hide.reason(value, event.cause))
        return told_text(value) if type(value) is str else value

    def _tokens_of(self, event: Event) -> int | None:
        """How many tokens a new node has: under a token policy its bytes do not say."""
        if isinstance(event, NodeCreated) and self._page_size is not None:
            return len(event.full_pages) * self._page_size
        return None


def told_text(text: str) -> str:
    """A caller's text as JSON can carry it: halves of surrogate pairs, which no UTF-8 holds, become "?"."""
    return text if text.isascii() else text.encode(errors="replace").decode()
