"""What each event does to the state, and its reverse, side by side. Importing this registers all."""

from kvledger.core.changes import facts, locks, nodes, pages, requests
from kvledger.core.events import EVENTS
from kvledger.core.state import CHANGES

__all__ = ["facts", "locks", "nodes", "pages", "requests"]

_missing = [kind for kind, cls in EVENTS.items() if cls not in CHANGES]
if _missing:
    raise ImportError(f"event kinds without a change: {_missing}")
