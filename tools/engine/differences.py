"""How far logits were off, as values: per request, and summed up for a report. Loads no tensors."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

MAX_FINDINGS = 20
"""Wrong requests told in words; the counts have them all."""


@dataclass(frozen=True, slots=True)
class Difference:
    """How far the logits of one request were off, over all its sampled positions.

    `largest` and `mean` are over absolute differences of single logits; `nans` counts positions where a logit
    was no number, which are in neither. `first` is the first position beyond the bar, None where none is.
    """

    request_id: str
    positions: int
    largest: float
    mean: float
    nans: int
    first: int | None

    def __str__(self) -> str:
        off = f"by {self.largest:.3g}" + (f", {self.nans} times no number" if self.nans else "")
        return (
            f"request {self.request_id}: logits of {self.positions} positions differ {off} from the model "
            f"run alone, first at position {self.first}"
        )


class LogitsReport(BaseModel):
    """Logits compared with those of the same model run alone. `wrong` requests were off by more than `bar`.

    `largest` and `mean` are absolute differences over all compared logits that are numbers; `nans` counts
    positions where one was none.
    """

    model_config = ConfigDict(frozen=True)

    model: str
    dtype: str
    bar: float
    requests: int
    positions: int
    wrong: int
    nans: int
    largest: float
    mean: float
    findings: list[str]


@dataclass(frozen=True)
class Total:
    """Differences of several requests taken together: `mean` weighs each compared position alike."""

    requests: int
    positions: int
    nans: int
    largest: float
    mean: float


def total(differences: Sequence[Difference]) -> Total:
    """Sum up. Where nothing could be compared, `largest` and `mean` are 0."""
    numbers = [difference.positions - difference.nans for difference in differences]
    summed = math.fsum(one.mean * count for one, count in zip(differences, numbers, strict=True))
    return Total(
        requests=len(differences),
        positions=sum(difference.positions for difference in differences),
        nans=sum(difference.nans for difference in differences),
        largest=max((difference.largest for difference in differences), default=0.0),
        mean=summed / max(1, sum(numbers)),
    )


def findings(differences: Sequence[Difference]) -> list[str]:
    """The first wrong requests, in words."""
    wrong = [difference for difference in differences if difference.first is not None]
    return [str(difference) for difference in wrong[:MAX_FINDINGS]]
