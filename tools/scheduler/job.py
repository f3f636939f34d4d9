"""One request in the scheduler's hands: what the client sent, and how far it has come."""

from dataclasses import dataclass

import numpy as np

from kvledger.core import Request
from kvledger.tools.kv.check import Slots
from kvledger.tools.kv.synthetic import Codes
from kvledger.tools.workload.spec import Tokens, WorkRequest


@dataclass(slots=True, eq=False)
class Job:
    """A request from arrival to goodbye.

    `tokens` is the prompt and all that will be generated; the cache knows the first `known` of them.
    `row` is the engine's own copy of the slots, patched only with what the cache reports, as a device
    row would be: [0, reserved) is valid. `codes` says what each position's KV must be, per layer.
    """

    spec: WorkRequest
    tokens: Tokens
    row: Slots
    codes: dict[int, Codes]
    known: int
    request: Request | None = None
    prefix: int = 0
    reserved: int = 0
    computed: int = 0
    protected: int = 0
    branch: int | None = None
    opened_at_step: int = 0

    @property
    def name(self) -> str:
        """The request's id."""
        return self.spec.request_id

    @property
    def pending(self) -> int:
        """Tokens known but not computed: one while decoding, more in prefill."""
        return self.known - self.computed

    @property
    def decoding(self) -> bool:
        """It waits for the KV of the one token it generated last."""
        return self.known > len(self.spec.prompt) and self.pending == 1

    @property
    def untouched(self) -> bool:
        """It was opened or resumed and owns no slots yet, so its prefix may still be matched again."""
        return self.reserved == self.prefix

    @property
    def done(self) -> bool:
        """It has all it asked for. The KV of the last generated token is never needed."""
        return self.pending == 0 or len(self.spec.prompt) < self.known == len(self.tokens)

    @property
    def gone(self) -> bool:
        """Its client has left by now."""
        return self.spec.abort_at is not None and self.computed >= self.spec.abort_at

    @property
    def live(self) -> Request:
        """The open request; a job without one is a mistake of the scheduler's."""
        if self.request is None:
            raise RuntimeError(f"request {self.name} was never opened")
        return self.request


def new_job(spec: WorkRequest) -> Job:
    """A job whose arrays are sized once, for all that it will ever hold."""
    tokens = np.concatenate([spec.prompt, spec.output])
    return Job(
        spec=spec,
        tokens=tokens,
        row=np.zeros(len(tokens), dtype=np.int64),
        codes={},
        known=len(spec.prompt),
    )
