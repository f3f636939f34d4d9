"""What a run amounted to: one document for machines, one page for people."""

from pydantic import BaseModel, ConfigDict
from rich.console import Console, Group, RenderableType
from rich.text import Text

from kvledger.journal.audit import Finding, Verdict
from kvledger.tools.engine.differences import LogitsReport

NAMED_AT_MOST = 3
"""Invariants of one status that a line names: where events are missing nearly all are unverified."""


class RunReport(BaseModel):
    """Figures of one run. Tokens unless a name says otherwise.

    Seconds are CPU time: of the scheduler's thread in cache calls and in the journal's, and of the
    journal's writer, which is another thread.

    `evicted_*` and `tombstones` count what the cache did by itself; `recoveries_locked` of `recoveries` kept
    locked Full. `mixed_nodes` hold Full and SWA of different forwards at the end.
    `stopped` is what ended the run before its workload did, None where nothing; `rejected` requests are
    too large for the pools, whoever else leaves, and were not served.
    `kv_reads` are slots compared, `kv_wrong` those that held anything but what their reader's tokens call
    for; both are None where nothing was read back. `logits` is what takes their place where a model computed
    the KV, None where none did or nothing was checked. `refused` were computed but not accepted by a commit.
    """

    model_config = ConfigDict(frozen=True)

    journal: int
    name: str
    database: str
    stopped: str | None
    requests: int
    finished: int
    aborts: int
    rejected: int
    steps: int
    prompt_tokens: int
    output_tokens: int
    hit_tokens: int
    hit_ratio: float
    evicted_full: int
    evicted_swa: int
    slid_tokens: int
    tombstones: int
    recoveries: int
    recoveries_locked: int
    rollbacks: int
    anomalies: int
    refused: int
    retractions: int
    refreshes: int
    branch_points: int
    mixed_nodes: int
    events: int
    transactions: int
    durable_seq: int
    bytes_per_event: float
    cache_seconds: float
    journal_seconds: float
    journal_writer_seconds: float
    kv_reads: int | None
    kv_wrong: int | None
    kv_findings: list[str]
    logits: LogitsReport | None
    audit: Verdict

    @property
    def passed(self) -> bool:
        """The workload was served, the audit found no violation, and neither reads nor logits were wrong."""
        wrong = self.kv_wrong or (self.logits is not None and self.logits.wrong)
        return self.stopped is None and self.audit.verdict == "pass" and not wrong


def print_report(report: RunReport, console: Console) -> None:
    """The report as a page."""
    console.print(_page(report))


def _page(report: RunReport) -> RenderableType:
    kv = "not checked"
    if report.kv_reads is not None:
        kv = f"{report.kv_reads:,} slots compared, {report.kv_wrong:,} wrong"
    rows = {
        "requests": f"{report.requests:,}: {report.finished:,} finished, {report.aborts:,} aborted"
        + (f", {report.rejected:,} too large for the pools" if report.rejected else ""),
        "steps": f"{report.steps:,}",
        "tokens": f"{report.prompt_tokens:,} prompt, {report.output_tokens:,} output",
        "hit ratio": f"{report.hit_ratio:.1%} of prompt tokens needed no prefill",
        "evicted": f"{report.evicted_full:,} Full and {report.evicted_swa:,} SWA tokens",
        "given back by sliding": f"{report.slid_tokens:,} SWA tokens",
        "tombstones": f"{report.tombstones:,}",
        "recoveries": f"{report.recoveries:,}, {report.recoveries_locked:,} of them under a Full lock",
        "mixed origins": f"{report.mixed_nodes:,} nodes now hold Full and SWA of different requests",
        "rollbacks": f"{report.rollbacks:,} with {report.anomalies:,} anomalies, "
        f"{report.refused:,} tokens refused",
        "retractions": f"{report.retractions:,}",
        "branch points": f"{report.branch_points:,} published",
        "prefixes grown": f"{report.refreshes:,}, while their requests waited in the batch",
        "journal": f"{report.events:,} events in {report.transactions:,} transactions, "
        f"{report.bytes_per_event:.0f} bytes per event",
        "": f"number {report.journal} ({report.name}) in {report.database}, "
        f"durable to seq {report.durable_seq:,}",
        "CPU time": f"{report.cache_seconds:.2f} s in the cache, "
        f"{report.journal_seconds:.2f} s in the journal "
        f"and {report.journal_writer_seconds:.2f} s in its writer's thread",
    }
    if report.logits is None:
        rows["KV read"] = kv
    else:
        rows |= _logits(report.logits)
    lines = [Text.assemble((f"{name:<22}", "bold"), value) for name, value in rows.items()]
    told = report.kv_findings + ([] if report.logits is None else report.logits.findings)
    findings = [Text(finding, style="red") for finding in told]
    if report.stopped is not None:
        findings.append(Text(f"stopped in step {report.steps:,}: {report.stopped}", style="bold red"))
    return Group(*lines, *findings, Text(), verdict_summary(report.audit))


def _logits(logits: LogitsReport) -> dict[str, str]:
    nans = f", {logits.nans:,} positions no number" if logits.nans else ""
    return {
        "logits": f"{logits.requests:,} requests, {logits.positions:,} positions "
        f"against {logits.model} run alone ({logits.dtype})",
        "logits off": f"{logits.wrong:,} requests by more than {logits.bar:g}{nans}; "
        f"largest {logits.largest:.2g}, mean {logits.mean:.2g}",
    }


def verdict_summary(verdict: Verdict) -> RenderableType:
    """The audit's verdict, what it rests on, and every finding; the whole page is `Verdict.render`."""
    counts = verdict.counts
    style = "bold green" if verdict.passed else "bold red"
    lines = [
        f"  {_invariants(verdict)}",
        f"  {counts.locks_followed:,} locks followed over {counts.pages_followed:,} pages",
        f"  {counts.recoveries:,} recoveries, {counts.recoveries_under_lock:,} under a Full lock",
        f"  {counts.matches:,} matches and {counts.inserts:,} inserts checked, "
        f"{counts.pages_moved:,} pages moved",
        f"  {counts.checkpoints_reproduced:,} of {counts.checkpoints:,} checkpoints reproduced",
    ]
    if counts.pages_fingerprinted:
        told = f"{counts.pages_fingerprinted:,} pages fingerprinted, {counts.pages_compared:,} compared"
        lines.append(f"  {told} with what they held when they were locked")
    if counts.pages_content_unread:
        lines.append(
            f"  {counts.pages_content_unread:,} pages could not be read: what they held is unverified"
        )
    return Group(
        Text.assemble("audit: ", (verdict.verdict, style)),
        *map(Text, lines),
        *(Text(finding_line(finding), style="red") for finding in verdict.findings),
    )


def _invariants(verdict: Verdict) -> str:
    """How many invariants were verified, over how much, and what became of the others."""
    total, counts = len(verdict.invariants), verdict.counts
    others: dict[str, list[str]] = {}
    for report in verdict.invariants:
        if report.status != "verified":
            others.setdefault(report.status.replace("_", " "), []).append(report.id)
    over = f"invariants over {counts.events:,} events of {counts.transactions:,} transactions"
    if not others:
        return f"{total} {over}"
    verified = total - sum(map(len, others.values()))
    told = [f"{_named(ids)} {status}" for status, ids in others.items()]
    return f"{verified} of {total} {over} ({'; '.join(told)})"


def _named(ids: list[str]) -> str:
    return ", ".join(ids) if len(ids) <= NAMED_AT_MOST else str(len(ids))


def finding_line(finding: Finding) -> str:
    """One finding in a line: which invariant, where, and what happened."""
    named = {
        "seq": finding.seq,
        "transaction": finding.transaction,
        "request": finding.request,
        "node": finding.node,
        "pages": " ".join(map(str, finding.pages)) or None,
    }
    where = ", ".join(f"{name} {value}" for name, value in named.items() if value is not None)
    return f"[{finding.invariant}] {where}: {finding.sentence}"
