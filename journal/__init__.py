"""Events on disk: recording, reading back and verifying; replay and audit read what comes out."""

from kvledger.journal.chain import ChainHead
from kvledger.journal.reader import EventFilter, JournalInfo, JournalReader
from kvledger.journal.recorder import Recorder
from kvledger.journal.records import StoredEvent, StoredTransaction, number_transactions
from kvledger.journal.store import Journal
from kvledger.journal.verify import ChainBreak

__all__ = [
    "ChainBreak",
    "ChainHead",
    "EventFilter",
    "Journal",
    "JournalInfo",
    "JournalReader",
    "Recorder",
    "StoredEvent",
    "StoredTransaction",
    "number_transactions",
]
