"""What came of sharing prefixes: the answer of `SharedPrefixes.report`."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PrefixReport:
    """Counts since the prefixes are shared; plain numbers, safe to keep.

    `prompt_tokens` and `prefill_tokens_saved` count each request once, when it is first admitted;
    `resumed_tokens_saved` is what requests found again after the scheduler had put them back in the queue.
    `journal` is the number of the journal in `database`, None without one, and `durable_seq` what of it is on
    disk. `stopped` says why the cache takes no more calls, None where it does.
    """

    requests: int
    finished: int
    aborted: int
    retractions: int
    prompt_tokens: int
    prefill_tokens_saved: int
    resumed_tokens_saved: int
    evicted_full_tokens: int
    evicted_swa_tokens: int
    tombstones: int
    recoveries: int
    recoveries_locked: int
    anomalies: int
    journal: int | None
    database: str | None
    durable_seq: int | None
    stopped: str | None

    @property
    def hit_ratio(self) -> float:
        """Which part of the prompts needed no prefill."""
        return self.prefill_tokens_saved / self.prompt_tokens if self.prompt_tokens else 0.0

    def __str__(self) -> str:
        """Four lines for a person."""
        kept = "no journal" if self.journal is None else f"journal {self.journal} in {self.database}"
        lines = [
            f"requests    {self.requests:,}: {self.finished:,} finished, {self.aborted:,} aborted, "
            f"{self.retractions:,} retractions",
            f"prefill     {self.prefill_tokens_saved:,} of {self.prompt_tokens:,} prompt tokens saved "
            f"({self.hit_ratio:.1%})",
            f"cache       {self.evicted_full_tokens:,} Full and {self.evicted_swa_tokens:,} SWA tokens "
            f"evicted, {self.recoveries:,} recoveries, {self.recoveries_locked:,} of them under a Full lock",
            f"journal     {kept}",
        ]
        if self.stopped is not None:
            lines.append(f"stopped     {self.stopped}")
        return "\n".join(lines)
