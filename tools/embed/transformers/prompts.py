"""What a request must be before the scheduler may have it: a name, and a prompt of the model's token ids.

Who brings something else is refused alone: in a batch it would take all the others with it.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from kvledger.core.errors import InvalidArgument
from kvledger.core.inputs import check_request_id, pack_tokens, unpack_tokens

Tokens = npt.NDArray[np.int32]


class RefusedRequest(InvalidArgument):
    """A request that cannot be taken as it is: its id is in use or no name, or its prompt could never run."""


def packed_prompt(request_id: str, prompt: Sequence[int]) -> Tokens:
    """A prompt as int32[n]. RefusedRequest where it is none, or empty, or its request has no proper name."""
    try:
        check_request_id(request_id)
        tokens = unpack_tokens(pack_tokens(prompt))
    except InvalidArgument as error:
        raise RefusedRequest(f"request {request_id!r} cannot be taken: {error}") from error
    if not len(tokens):
        raise RefusedRequest(f"request {request_id!r} has no tokens")
    return tokens


def check_runnable(request_id: str, tokens: Tokens, *, vocabulary: int, most: int) -> None:
    """RefusedRequest for a token id that the model does not have, or more than `most` tokens."""
    strange = tokens[(tokens < 0) | (tokens >= vocabulary)]
    if len(strange):
        raise RefusedRequest(
            f"request {request_id!r} has token {strange[0]}, the model only those below {vocabulary:,}"
        )
    if len(tokens) > most:
        raise RefusedRequest(f"request {request_id!r} has {len(tokens):,} tokens, the Full pool {most:,}")
