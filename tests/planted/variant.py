"""What a planted fault is, and what has to be seen of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from tests.planted.evidence import Course, Evidence
from tests.planted.life import life
from tests.planted.planting import Planting

ABOUT_A_NODE = frozenset({"node_created", "node_deleted", "swa_recovered", "swa_tombstoned"})
"""Kinds of events whose node is the one that a finding about them names, if it names one."""

LIVES = (
    Course(life, page=4, window=6, full=240, swa=180),
    Course(life, page=1, window=4, full=80, swa=64),
    Course(life, page=8, window=3, full=320, swa=200),
)
"""The courses that a variant is tried on, one after the other, until something is noticed."""

QUIET_LIVES = tuple(replace(course, quiet=True) for course in LIVES)
SKIPPING_LIVES = tuple(replace(course, locked_recovery="skip") for course in LIVES)


@dataclass(frozen=True)
class Audit:
    """The audit finds it, from the events alone, before anything else is found.

    `at` is the kind of the event that the first finding of `invariant` names. `after` says where that stands
    from the first event that the right code would not have written: "here" is that very event, "in its
    transaction" one that the same transaction holds, "later" any after it, where the first consequences were
    sound by themselves; "as read" is for a reader that is wrong, while the journal is right. `names` are the
    fields of the finding that have to be there; a node is compared with the event's.
    """

    invariant: str
    at: str
    after: Literal["here", "in its transaction", "later", "as read"] = "in its transaction"
    names: tuple[str, ...] = ()

    def describe(self) -> str:
        """For the table."""
        return f"audit: `{self.invariant}` at `{self.at}`"

    def noticed(self, evidence: Evidence) -> bool:
        """Whether the audit found anything."""
        return bool(evidence.verdict.findings)

    def confirm(self, evidence: Evidence, right: Evidence) -> None:
        """AssertionError unless it was found, and where it has to be."""
        first = evidence.first_difference(right)
        findings = evidence.verdict.findings
        told = "\n".join(f"{f.seq} [{f.invariant}] {f.sentence}" for f in findings[:8])
        told = f"first difference at seq {first}, stopped by {evidence.stopped!r}, found:\n{told}"
        assert findings, f"nothing is found; {told}"
        earliest = min(finding.seq or 0 for finding in findings)
        # Where the fault is that events are missing, the last event of their transaction is pointed at.
        cut_short = earliest == first - 1 == evidence.last_seq_of(earliest) < right.last_seq_of(earliest)
        if self.after == "as read":
            assert first > len(evidence.cells), f"the journal is another one; {told}"
        else:
            assert earliest >= first or cut_short, f"found before anything was wrong; {told}"
        mine = [f for f in findings if f.seq == earliest and f.invariant == self.invariant]
        assert mine, f"something else is found first; {told}"
        event = evidence.event(earliest)
        assert event.kind == self.at, f"found at {event.kind}; {told}"
        if self.after == "here":
            assert earliest == first, told
        elif self.after == "in its transaction" and not cut_short:
            assert evidence.transaction_of(earliest) == evidence.transaction_of(first), told
        finding = mine[0]
        for name in self.names:
            assert getattr(finding, name) not in (None, ()), f"no {name} is named; {told}"
        if finding.node is not None and event.kind in ABOUT_A_NODE:
            assert finding.node == getattr(event, "node", None), f"node {finding.node} is named; {told}"


@dataclass(frozen=True)
class Walk:
    """The full walk, `HybridCache.check()`, finds it first; the journal up to there is sound."""

    invariant: str

    def describe(self) -> str:
        """For the table."""
        return f"`check()`: `{self.invariant}`"

    def noticed(self, evidence: Evidence) -> bool:
        """Whether the walk found anything."""
        return evidence.walked is not None

    def confirm(self, evidence: Evidence, right: Evidence) -> None:
        """AssertionError unless it was found."""
        assert evidence.walked is not None, f"nothing is found; stopped by {evidence.stopped!r}"
        seq, violations = evidence.walked
        assert self.invariant in {invariant for invariant, _ in violations}, violations
        sound = [f for f in evidence.verdict.findings if (f.seq or 0) <= seq]
        assert not sound, f"the audit finds it too, at seq {sound[0].seq}: {sound[0].sentence}"


@dataclass(frozen=True)
class Raised:
    """The cache refuses by itself, with a typed error, and nothing wrong is in the journal by then."""

    error: type[Exception]
    words: str

    def describe(self) -> str:
        """For the table."""
        return f"the cache: `{self.error.__name__}`, {self.words}"

    def noticed(self, evidence: Evidence) -> bool:
        """Whether the run was ended by an error."""
        return evidence.stopped is not None

    def confirm(self, evidence: Evidence, right: Evidence) -> None:
        """AssertionError unless it was ended by this error."""
        assert type(evidence.stopped) is self.error, repr(evidence.stopped)
        assert self.words in str(evidence.stopped), str(evidence.stopped)
        assert evidence.verdict.verdict == "pass", evidence.verdict.findings[:3]


@dataclass(frozen=True)
class Probe:
    """A probe of `probes.py` tells of it, with these words; on the right code it tells nothing."""

    probe: Callable[[Path], str | None]
    words: str

    def describe(self) -> str:
        """For the table."""
        return f"probe `{self.probe.__name__}`: {self.words.strip(' :[')}"


@dataclass(frozen=True)
class Named:
    """A test of the suite, which states the rule, fails."""

    test: Callable[..., None]
    arguments: tuple[object, ...] = ()

    def describe(self) -> str:
        """For the table."""
        return f"test: `{self.test.__name__}`"


Found = Audit | Walk | Raised | Probe | Named


@dataclass(frozen=True)
class Variant:
    """One fault: what is wrong in a sentence, how it is planted, where it is tried, what has to find it.

    `families` are numbers of the list of families of faults. `plant` takes away the cache's own guards too
    where they would stop the fault before it is journaled, so that the audit is what is tried.
    """

    name: str
    families: tuple[int, ...]
    wrong: str
    plant: Callable[[Planting], None]
    found: Found
    courses: Sequence[Course] = LIVES
