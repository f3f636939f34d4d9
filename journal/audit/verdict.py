"""What an audit says: a document for machines (pydantic) and the same as a page to read."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

Status = Literal["verified", "failed", "not_checked", "unverified"]


NO_CHECKPOINT = "none, so changes without an event would not be seen"
TAIL_UNKNOWN = "without an anchor it cannot be known whether the end was cut off or the journal replaced"
NOT_HERE = "these rows are not here; give the exported files with --exported"
TAIL_REFUTED = "the anchor does not confirm this journal: see what was found"
TAIL_EARLIER = "the anchor is older than all that is here: it cannot tell whether the end was cut off"
CONTENT_UNKNOWN = (
    "what pages held when they were locked is unknown for locks from before the checkpoint: they are "
    "followed from their next fingerprint on"
)
CONTENT_UNREAD = (
    "the cache could not read the KV of some locked pages when it had to, and says so: what they held is "
    "unverified"
)
TAIL_KNOWN = "the anchor stands in this journal: nothing up to it was cut off"


class Finding(BaseModel):
    """One place where a journal breaks an invariant.

    `request` is the request concerned; for a lock, one that holds it, and `holders` names all of them
    (requests by id, others as "lease 7"). `pages` are page numbers, at most `findings.PAGES_NAMED` of
    the `pages_total` concerned. `seq` and `transaction` are None only where no event is to blame.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    invariant: str
    sentence: str
    seq: int | None = None
    transaction: int | None = None
    request: str | None = None
    holders: tuple[str, ...] = ()
    node: int | None = None
    pages: tuple[int, ...] = ()
    pages_total: int = 0


class InvariantReport(BaseModel):
    """How one invariant fared. `findings` counts all of them, also those the document leaves out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    sentence: str
    status: Status
    findings: int


class Counts(BaseModel):
    """What was checked. Pages followed are counted once for each lock that held them.

    `pages_compared` are Full pages whose fingerprint was held against an earlier one, `pages_content_unknown`
    those for which the earlier one is not there, because their lock began before a checkpoint that the audit
    went on from, or it is missing. `pages_content_unread` are those that the cache says it could not read.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    events: int = 0
    undone_events: int = 0
    transactions: int = 0
    transactions_rolled_back: int = 0
    locks_followed: int = 0
    pages_followed: int = 0
    locks_open_at_end: int = 0
    locks_cut_by_reset: int = 0
    pages_moved: int = 0
    inserts: int = 0
    matches: int = 0
    requests: int = 0
    recoveries: int = 0
    recoveries_under_lock: int = 0
    mixed_nodes_at_end: int = 0
    tombstones: int = 0
    evictions: int = 0
    rollbacks: int = 0
    anomalies: int = 0
    skipped: int = 0
    resets: int = 0
    checkpoints: int = 0
    checkpoints_reproduced: int = 0
    pages_fingerprinted: int = 0
    pages_compared: int = 0
    pages_content_unknown: int = 0
    pages_content_unread: int = 0
    full_states: int = 0
    full_states_reproduced: int = 0


class LockCut(BaseModel):
    """A lock that a reset ended instead of its holder: no violation, but somebody should know."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seq: int
    lease: int
    request: str | None
    length: int


class Gap(BaseModel):
    """A part of a journal that could not be verified: events [first_seq, last_seq].

    `reason`: "dropped" where the recorder had to give events up, `dropped` of them; "not here" where a
    journal begins later than with its first event; "unreadable" from the first row that cannot be read.
    `last_seq` is None for the end of the journal. `resumed_seq` is the checkpoint from which the audit went
    on, None where there was none and it stopped.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    first_seq: int
    last_seq: int | None
    dropped: int = 0
    reason: Literal["dropped", "not here", "unreadable"] = "dropped"
    resumed_seq: int | None


class Verdict(BaseModel):
    """The outcome of one audit: "fail" where any invariant has a finding, "unverified" where none has but
    part of the journal could not be read, or the cache itself could not read KV that it had to fingerprint.

    `checkpoint_seq` is the checkpoint from which the audit started because what lies before it is not there.
    `tail` says whether the end is known to be there, `notes` what else has to be known of the evidence.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    verdict: Literal["pass", "fail", "unverified"]
    counts: Counts
    invariants: tuple[InvariantReport, ...]
    findings: tuple[Finding, ...]
    locks_cut: tuple[LockCut, ...] = ()
    gaps: tuple[Gap, ...] = ()
    checkpoint_seq: int | None = None
    tail: str = TAIL_UNKNOWN
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether everything was verified and nothing was found."""
        return self.verdict == "pass"

    def render(self) -> str:
        """The verdict as plain text, a line for each invariant, finding and count."""
        lines = [f"verdict: {self.verdict}", f"tail: {self.tail}", ""]
        if self.checkpoint_seq is not None:
            lines.insert(1, f"begins: at the checkpoint of seq {self.checkpoint_seq}, with nothing before it")
        lines[-1:-1] = [f"unverified: {_gap(gap)}" for gap in self.gaps]
        lines[-1:-1] = [f"note: {note}" for note in self.notes]
        if not self.counts.checkpoints:
            lines[-1:-1] = [f"checkpoints: {NO_CHECKPOINT}"]
        width = max(len(report.id) for report in self.invariants)
        for report in self.invariants:
            status = report.status.replace("_", " ")
            found = f" ({report.findings})" if report.findings else ""
            lines.append(f"  {report.id:<{width}}  {status + found:<14}  {report.sentence}")
        if self.findings:
            total = sum(report.findings for report in self.invariants)
            lines += ["", f"findings: {len(self.findings)} of {total} shown, by seq"]
            lines += [f"  {_line(finding)}" for finding in self.findings]
        if self.locks_cut:
            lines += ["", f"locks cut by a reset: {self.counts.locks_cut_by_reset}"]
            for cut in self.locks_cut:
                holder = "a caller" if cut.request is None else f"request {cut.request!r}"
                lines.append(f"  seq {cut.seq}: lease {cut.lease} of {holder}, {cut.length} tokens")
        lines += ["", "checked:"]
        counts = self.counts.model_dump()
        name_width = max(len(name) for name in counts)
        lines += [f"  {name.replace('_', ' '):<{name_width}}  {count:>12,}" for name, count in counts.items()]
        return "\n".join(lines) + "\n"


def _gap(gap: Gap) -> str:
    went_on = "nothing after it" if gap.resumed_seq is None else f"resumed at checkpoint {gap.resumed_seq}"
    if gap.reason == "unreadable":
        return f"all events from {gap.first_seq} on: rows cannot be read"
    events = f"events {gap.first_seq} to {gap.last_seq}"
    if gap.reason == "not here":
        return f"{events}: {NOT_HERE}; {went_on}"
    return f"{events}, {gap.dropped} of them never stored; {went_on}"


def _line(finding: Finding) -> str:
    where = []
    if finding.seq is not None:
        where.append(f"seq {finding.seq}")
    if finding.transaction is not None:
        where.append(f"transaction {finding.transaction}")
    if finding.holders:
        where.append("held by " + ", ".join(finding.holders))
    elif finding.request is not None:
        where.append(f"request {finding.request}")
    if finding.node is not None:
        where.append(f"node {finding.node}")
    if finding.pages:
        more = finding.pages_total - len(finding.pages)
        where.append("pages " + " ".join(map(str, finding.pages)) + (f" and {more} more" if more > 0 else ""))
    return f"[{finding.invariant}] " + (", ".join(where) + ": " if where else "") + finding.sentence
