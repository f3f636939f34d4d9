"""`kvledger audit`: was locked KV ever replaced, freed or handed on? Are the rows what was written?"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvledger.core.errors import InvalidArgument
from kvledger.tools.cli.output import (
    OK,
    VIOLATION,
    JsonOption,
    complain,
    print_json,
    progress_bar,
    read_small_file,
)
from kvledger.tools.cli.stored import DatabaseArgument, ExportedOption, JournalOption

if TYPE_CHECKING:
    from kvledger.journal.audit import Verdict
    from kvledger.tools.chain import ChainReport


def audit_command(
    database: DatabaseArgument,
    journal: JournalOption = None,
    exported: ExportedOption = None,
    chain: Annotated[
        bool, typer.Option("--chain", help="Only the hashes: was a stored byte changed? Replays nothing.")
    ] = False,
    anchor: Annotated[
        Path | None,
        typer.Option("--anchor", help="What `kvledger anchor` printed: was the end cut off since?"),
    ] = None,
    public_key: Annotated[
        Path | None,
        typer.Option("--public-key", help="Ed25519 key, PEM: the anchor must be signed with it."),
    ] = None,
    as_json: Annotated[bool, JsonOption] = False,
) -> int:
    """Check every invariant at every event of a journal, without the cache's code.

    Exit status: 0 pass, 1 violation, or a part that could not be verified; 2 could not run.
    """
    from kvledger.journal import Journal
    from kvledger.journal.audit.verdict import TAIL_KNOWN
    from kvledger.journal.export import is_exported
    from kvledger.journal.verify import ChainTally
    from kvledger.tools.chain import (
        breaks_in_files,
        breaks_of,
        check_chain,
        journal_of,
        journals_in,
        open_anchor,
    )
    from kvledger.tools.judge import judge, judge_source
    from kvledger.tools.sources import open_source

    kept = None
    if anchor is not None:
        key = None if public_key is None else read_small_file(public_key, what="public key")
        kept = open_anchor(read_small_file(anchor, what="anchor"), public_key=key)
    elif public_key is not None:
        raise InvalidArgument("--public-key is for the anchor's signature: give --anchor too")
    tally = ChainTally()
    if exported is not None or is_exported(database):
        if chain:
            raise InvalidArgument("--chain is for a database without files; leave it out to verify both")
        with open_source(database, journal, exported=exported) as opened, progress_bar() as progress:
            in_files = breaks_in_files(opened, kept, tally=tally)
            verdict = judge_source(opened, chain=in_files, progress=progress)
    else:
        with Journal.open(database, create=False) as store:
            number = journal_of(store, journal, kept)
            by_default = journal is None and kept is None and not as_json
            journals = len(journals_in(store)) if by_default else 1
            if journals > 1:
                complain(f"the store holds {journals} journals; this is {number}, --journal names another")
            if chain:
                report = check_chain(store, number, kept)
                _say(report, as_json=as_json)
                return OK if report.verdict == "pass" else VIOLATION
            with progress_bar() as progress:
                found = breaks_of(store, number, kept, tally=tally)
                verdict = judge(store, number, chain=found, progress=progress)
    if tally.anchored and not any(one.invariant in ("chain", "sequence") for one in verdict.findings):
        verdict = verdict.model_copy(update={"tail": TAIL_KNOWN})
    _say(verdict, as_json=as_json)
    return OK if verdict.passed else VIOLATION


def _say(document: "Verdict | ChainReport", *, as_json: bool) -> None:
    if as_json:
        print_json(document)
    else:
        typer.echo(document.render(), nl=False)
