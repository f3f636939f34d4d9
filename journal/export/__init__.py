"""Journals as files: export, pruning of what was exported, and reading files as one reads the database."""

from kvledger.journal.export.folder import ExportedJournal, is_exported
from kvledger.journal.export.prune import Pruned, prune_rows
from kvledger.journal.export.take import export_journal
from kvledger.journal.export.verify import verify_exported
from kvledger.journal.export.write import EXPORT_FORMATS, Exported, ExportFormat

__all__ = [
    "EXPORT_FORMATS",
    "ExportFormat",
    "Exported",
    "ExportedJournal",
    "Pruned",
    "export_journal",
    "is_exported",
    "prune_rows",
    "verify_exported",
]
