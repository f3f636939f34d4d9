"""Events on disk: recording, reading back and verifying; replay and audit read what comes out."""

from kvledger.journal.apart import ApartRecorder
from kvledger.journal.chain import ChainHead
from kvledger.journal.info import JournalInfo
from kvledger.journal.lookups.questions import (
    Beginning,
    Count,
    EventFilter,
    FoundEvent,
    FoundTransaction,
    LookUpSource,
    TransactionFilter,
)
from kvledger.journal.reader import JournalReader
from kvledger.journal.recorder import Recorder
from kvledger.journal.records import StoredEvent, StoredTransaction, number_transactions
from kvledger.journal.store import Journal
from kvledger.journal.tail import Tail
from kvledger.journal.verify import ChainBreak

__all__ = [
    "ApartRecorder",
    "Beginning",
    "ChainBreak",
    "ChainHead",
    "Count",
    "EventFilter",
    "FoundEvent",
    "FoundTransaction",
    "Journal",
    "JournalInfo",
    "JournalReader",
    "LookUpSource",
    "Recorder",
    "StoredEvent",
    "StoredTransaction",
    "Tail",
    "TransactionFilter",
    "number_transactions",
]
