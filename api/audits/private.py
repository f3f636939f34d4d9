"""A verdict for eyes that may not see namespaces: findings about them quote their names."""

import ast
import re

from kvledger.api.told.hiding import Hiding
from kvledger.journal.audit.verdict import Finding, Verdict

QUOTING = frozenset({"namespace", "well-formed"})
"""Invariants whose findings quote what stands in events; names of requests are not private."""

_QUOTED = re.compile(r"""(request )?('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""")
"""A quoted text as `repr` writes it, and whether it is the name of a request."""


def hidden_verdict(verdict: Verdict, hide: Hiding) -> Verdict:
    """The verdict with every quoted text of such findings told as `hide` tells a namespace."""
    if hide.reveals:
        return verdict
    return verdict.model_copy(update={"findings": tuple(_hidden(one, hide) for one in verdict.findings)})


def _unquoted(quoted: str) -> str:
    try:
        text: str = ast.literal_eval(quoted)
    except (SyntaxError, ValueError):
        # An apostrophe of the sentence itself: what stands between two of them is hidden as it is.
        return quoted
    return text


def _hidden(finding: Finding, hide: Hiding) -> Finding:
    if finding.invariant not in QUOTING:
        return finding

    def label(match: re.Match[str]) -> str:
        if match[1]:
            return match[0]
        return repr(hide.namespace(_unquoted(match[2])))

    return finding.model_copy(update={"sentence": _QUOTED.sub(label, finding.sentence)})
