"""Events on disk: recording, reading back and verifying; replay and audit read what comes out."""

from kvledger.journal.chain import ChainHead
from kvledger.journal.lookup import EventFilter, FoundEvent
from kvledger.journal.reader import JournalInfo, JournalReader
from kvledger.journal.recorder import Recorder
from kvledger.journal.records import StoredEvent, StoredTransaction, number_transactions
from kvledger.journal.store import Journal
from kvledger.journal.tail import Tail
from kvledger.journal.verify import ChainBreak

__all__ = [
    "ChainBreak",
    "ChainHead",
    "EventFilter",
    "FoundEvent",
    "Journal",
    "JournalInfo",
    "JournalReader",
    "Recorder",
    "StoredEvent",
    "StoredTransaction",
    "Tail",
    "number_transactions",
]
