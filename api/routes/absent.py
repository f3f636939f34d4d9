"""What is not there at a seq: refused with 404, or told where somebody steps through time and expects it.

A browser puts every refusal on its console, and a page that goes from seq to seq past the birth and the end
of a node asks for what is not there in the best of health. With `absent=tell` that is an answer like others.
"""

from collections.abc import Callable
from typing import Annotated, Literal

from fastapi import Query

from kvledger.api.problems import Refusal
from kvledger.api.projection import Standing
from kvledger.api.schemas.common import AbsentOut, Answer

AbsentParam = Annotated[
    Literal["refuse", "tell"],
    Query(description="What is not there at that seq is 404, or with `tell` an answer that says so."),
]


def or_absent(tell: Callable[[Standing], Answer], *, absent: str) -> Callable[[Standing], Answer]:
    """`tell`, with its 404 made into an answer where `absent` is "tell"; other refusals pass."""

    def told(standing: Standing) -> Answer:
        try:
            return tell(standing)
        except Refusal as refusal:
            if absent != "tell" or refusal.status != 404:
                raise
            return AbsentOut(at=standing.at, sentence=refusal.detail)

    return told
