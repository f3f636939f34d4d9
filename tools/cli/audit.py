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
    from kvledger.tools.audit.chain_report import ChainReport
    from kvledger.tools.audit.evidence import Evidence

UNCHECKED = (
    "the anchor is signed, and its signature was not checked: --public-key names the key to hold it to"
)


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
    from kvledger.journal.chain_check import open_anchor
    from kvledger.tools.audit.evidence import Evidence, audit_chain, audit_stored

    kept = None
    if anchor is not None:
        key = None if public_key is None else read_small_file(public_key, what="public key")
        kept = open_anchor(read_small_file(anchor, what="anchor"), public_key=key)
    elif public_key is not None:
        raise InvalidArgument("--public-key is for the anchor's signature: give --anchor too")
    evidence = Evidence(database, journal, exported, kept)
    if journal is None and kept is None and not as_json:
        _say_which(evidence)
    if chain:
        report = audit_chain(evidence)
        _say(report, as_json=as_json)
        return OK if report.verdict == "pass" else VIOLATION
    with progress_bar() as progress:
        verdict = audit_stored(evidence, progress=progress)
    _say(verdict, as_json=as_json)
    if kept is not None and kept.signature == "not_checked" and not as_json:
        complain(UNCHECKED)
    return OK if verdict.passed else VIOLATION


def _say_which(evidence: "Evidence") -> None:
    """Tell which journal is taken where a database holds several and none was named."""
    from kvledger.journal import Journal
    from kvledger.journal.export import is_exported
    from kvledger.tools.audit.chain import journals_in

    if is_exported(evidence.where):
        return
    with Journal.open(evidence.where, create=False) as store:
        journals = journals_in(store)
    if len(journals) > 1:
        taken = journals[-1][0]
        complain(f"the store holds {len(journals)} journals; this is {taken}, --journal names another")


def _say(document: "Verdict | ChainReport", *, as_json: bool) -> None:
    if as_json:
        print_json(document)
    else:
        typer.echo(document.render(), nl=False)
