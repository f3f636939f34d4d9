"""Where the hash chain of a journal stands. Nothing is re-read for this: an audit does that."""

from fastapi import APIRouter

from kvledger.api.routes.dependencies import OF_A_JOURNAL, Opened
from kvledger.api.schemas.journals import ChainOut

router = APIRouter(prefix="/v1/journals/{journal}/chain", tags=["audits"], responses=OF_A_JOURNAL)

CHECKPOINTS_SHOWN = 1_000
"""The newest of them: a journal of a thousand million events has more."""


@router.get("")
def chain(opened: Opened) -> ChainOut:
    """The head of the chain, which an anchor would hold, and the seqs at which a full state is stored."""
    reader = opened.reader
    head = reader.head()
    seqs = reader.checkpoint_seqs()
    return ChainOut(
        journal=opened.id,
        epoch=head.epoch,
        number=head.number,
        seq=head.seq,
        hash=head.hash.hex(),
        first_number=reader.beginning().transaction if head.number else None,
        checkpoint_seqs=seqs[-CHECKPOINTS_SHOWN:],
        checkpoints_total=len(seqs),
    )
