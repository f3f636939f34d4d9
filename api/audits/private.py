"""A verdict for eyes that may not see namespaces: findings about them quote their names."""

from kvledger.api.told.hiding import Hiding
from kvledger.journal.audit.verdict import Finding, Verdict

QUOTING = frozenset({"namespace", "well-formed"})
"""Invariants whose findings quote what stands in events; names of requests are not private."""


def hidden_verdict(verdict: Verdict, hide: Hiding) -> Verdict:
    """The verdict with every quoted text of such findings told as `hide` tells a namespace."""
    if hide.reveals:
        return verdict
    return verdict.model_copy(update={"findings": tuple(_hidden(one, hide) for one in verdict.findings)})


def _hidden(finding: Finding, hide: Hiding) -> Finding:
    if finding.invariant not in QUOTING:
        return finding
    return finding.model_copy(update={"sentence": hide.message(finding.sentence)})
