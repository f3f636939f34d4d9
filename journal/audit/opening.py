"""well-formed: `cache_opened` says its sizes and policies twice, as fields and in its configuration."""

from kvledger.core.events import CacheOpened
from kvledger.journal.audit.findings import Findings

POLICIES = frozenset({"remap", "skip"})
"""What `locked_recovery` may be."""


def check_opening(event: CacheOpened, findings: Findings) -> None:
    """Report each field that the configuration beside it contradicts, where that names it."""
    told = {
        "page_size": event.page_size,
        "sliding_window": event.window,
        "full_tokens": event.full_pages * event.page_size,
        "swa_tokens": event.swa_pages * event.page_size,
        "locked_recovery": event.locked_recovery,
    }
    wrong = [
        f"{name} {event.config[name]} and {value}"
        for name, value in told.items()
        if name in event.config and event.config[name] != value
    ]
    if wrong:
        findings.add("well-formed", f"the cache is opened with two values of {', '.join(wrong)}")
    if event.locked_recovery not in POLICIES:
        findings.add(
            "well-formed", f"the policy {event.locked_recovery!r} for recovery under lock is unknown"
        )
