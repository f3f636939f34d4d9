"""Whether a request's logits are those of the same model run alone, without any cache.

The logits of each sampled position are kept until the request leaves. Then the model computes the whole
sequence in one pass with its own masks, and the two are held against each other. Random weights give few
distinct tokens, so logits are compared and never tokens.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from kvledger.tools.engine.differences import Difference, LogitsReport, findings, total
from kvledger.tools.workload.spec import Tokens

BAR = 1e-4
"""Largest absolute difference that counts as equal in float32, where rounding alone brings some 1e-6."""

Alone = Callable[[Tokens, list[int]], torch.Tensor]
"""From a row of tokens and ascending positions to their logits, [positions, vocabulary]."""


@dataclass(slots=True)
class _Samples:
    tokens: Tokens
    positions: list[int] = field(default_factory=list)
    logits: list[torch.Tensor] = field(default_factory=list)


class LogitsCheck:
    """Collects sampled logits and settles them request by request."""

    def __init__(self, alone: Alone, *, bar: float = BAR) -> None:
        self._alone = alone
        self._samples: dict[str, _Samples] = {}
        self.bar = bar
        self.differences: list[Difference] = []

    def sampled(self, request_id: str, tokens: Tokens, logits: torch.Tensor) -> None:
        """Note the logits, [vocabulary], that came after all of `tokens`."""
        samples = self._samples.setdefault(request_id, _Samples(tokens))
        samples.tokens = tokens
        samples.positions.append(len(tokens) - 1)
        samples.logits.append(logits)

    def settle(self, request_id: str) -> None:
        """Compare what was noted of a request and forget it. One forward of its whole sequence."""
        samples = self._samples.pop(request_id, None)
        if samples is None:
            return
        order = np.argsort(samples.positions)
        positions = [samples.positions[index] for index in order]
        found = torch.stack([samples.logits[index] for index in order]).float()
        off = (found - self._alone(samples.tokens, positions).float()).abs()
        nan_rows = off.isnan().any(dim=1)
        beyond = torch.nonzero(nan_rows | (off > self.bar).any(dim=1)).flatten().tolist()
        numbers = off[~nan_rows]
        self.differences.append(
            Difference(
                request_id=request_id,
                positions=len(positions),
                largest=float(numbers.max()) if len(numbers) else 0.0,
                mean=float(numbers.mean()) if len(numbers) else 0.0,
                nans=int(nan_rows.sum()),
                first=positions[beyond[0]] if beyond else None,
            )
        )

    def settle_rest(self) -> None:
        """Compare what is left of requests that never took their leave."""
        for request_id in list(self._samples):
            self.settle(request_id)

    def report(self, *, model: str, dtype: str) -> LogitsReport:
        """All that was settled so far, as one document."""
        return LogitsReport(
            model=model,
            dtype=dtype,
            bar=self.bar,
            wrong=sum(1 for difference in self.differences if difference.first is not None),
            **vars(total(self.differences)),
            findings=findings(self.differences),
        )


def run_alone(model: Any) -> Alone:
    """The model by itself: one pass over the whole row, no cache, its own masks."""

    def alone(tokens: Tokens, positions: list[int]) -> torch.Tensor:
        with torch.inference_mode():
            row = torch.from_numpy(tokens.astype(np.int64)).to(model.device)
            wanted = torch.tensor(positions, device=model.device)
            answer = model(input_ids=row[None], use_cache=False, logits_to_keep=wanted)
        logits: torch.Tensor = answer.logits[0]
        return logits

    return alone
