"""One request as a client sends it.

The output is part of it: no model runs here, so what "the model" will say is known beforehand, and two
runs of one workload are equal token for token.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Tokens = npt.NDArray[np.int32]
"""int32[n] token ids."""


@dataclass(frozen=True, slots=True, eq=False)
class WorkRequest:
    """A request: when it arrives, what it asks and what will be generated for it.

    `prompt` and `output` are int32 arrays, the prompt not empty. `arrival_ms` counts from the start of the
    workload. `abort_at`: the client leaves once that many tokens of prompt and output are computed (0: as
    soon as it was admitted); None: it stays to the end.
    """

    request_id: str
    arrival_ms: int
    prompt: Tokens
    output: Tokens
    namespace: str = ""
    abort_at: int | None = None
