"""The command line: `kvledger`. One module per command; what they do lives elsewhere.

Exit status: 0 done (and passed, where there is a verdict), 1 a violation or wrong KV, 2 could not run: bad
input, an unknown database, or an error; 130 interrupted. Bad input gets one sentence on stderr. A reader that
closes its pipe early changes none of it.
"""

import traceback
from collections.abc import Sequence
from typing import Annotated

import typer
from pydantic import ValidationError

from kvledger.core.errors import CacheError
from kvledger.tools.cli.anchor import anchor_command
from kvledger.tools.cli.audit import audit_command
from kvledger.tools.cli.bench import bench_app
from kvledger.tools.cli.db import db_app
from kvledger.tools.cli.diff import diff_command
from kvledger.tools.cli.events import anomalies_command, events_command
from kvledger.tools.cli.explain import explain_command
from kvledger.tools.cli.export import export_command
from kvledger.tools.cli.extras import what_is_missing
from kvledger.tools.cli.history import history_app
from kvledger.tools.cli.output import COULD_NOT_RUN, INTERRUPTED, OK, Interrupted, complain
from kvledger.tools.cli.prune import prune_command
from kvledger.tools.cli.replay import replay_command
from kvledger.tools.cli.run import run_command
from kvledger.tools.cli.serve import serve_command
from kvledger.tools.cli.show import show_app
from kvledger.tools.cli.streams import OutputLost, outlets
from kvledger.tools.cli.tail import tail_command
from kvledger.tools.cli.torture import torture_app
from kvledger.tools.cli.transactions import transactions_command

UsageFault: type[Exception] = next(
    base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException"
)
"""Base of what is raised for wrong usage: typer gives it no public name, and its home has moved."""

app = typer.Typer(
    name="kvledger",
    help="A prefix cache whose every change is in a journal: run it, replay it, audit it.",
    add_completion=False,
    pretty_exceptions_enable=False,
    invoke_without_command=True,
)
app.command("run")(run_command)
app.command("audit")(audit_command)
app.command("anchor")(anchor_command)
app.command("events")(events_command)
app.command("transactions")(transactions_command)
app.command("anomalies")(anomalies_command)
app.command("diff")(diff_command)
app.command("explain")(explain_command)
app.command("tail")(tail_command)
app.command("replay")(replay_command)
app.command("export")(export_command)
app.command("prune")(prune_command)
app.command("serve")(serve_command)
app.add_typer(show_app, name="show")
app.add_typer(history_app, name="history")
app.add_typer(bench_app, name="bench")
app.add_typer(db_app, name="db")
app.add_typer(torture_app, name="torture")


@app.callback()
def _welcome(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        from kvledger import __version__

        typer.echo(f"kvledger {__version__}")
        raise typer.Exit(OK)
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; `arguments` default to those of the process."""
    try:
        with outlets():
            return _run(arguments)
    except OutputLost as error:
        complain(str(error))
        return COULD_NOT_RUN


def _run(arguments: Sequence[str] | None) -> int:
    try:
        status = app(
            args=None if arguments is None else list(arguments), prog_name="kvledger", standalone_mode=False
        )
    except UsageFault as fault:
        complain(str(getattr(fault, "format_message", fault.__str__)()))
        return COULD_NOT_RUN
    except ValidationError as error:
        complain(_in_words(error))
        return COULD_NOT_RUN
    except CacheError as error:
        complain(str(error))
        return COULD_NOT_RUN
    except (typer.Abort, KeyboardInterrupt):
        complain("interrupted")
        return INTERRUPTED
    except Interrupted as how:
        complain(str(how))
        return INTERRUPTED
    except Exception as error:
        # A fault of this program must not look like the verdict "violation", which is what 1 means.
        sentence = what_is_missing(error) if isinstance(error, ModuleNotFoundError) else None
        if sentence is None:
            traceback.print_exc()
        else:
            complain(sentence)
        return COULD_NOT_RUN
    if status == INTERRUPTED:
        # Typer's way to pass a KeyboardInterrupt on.
        complain("interrupted")
    return status if isinstance(status, int) else OK


def _in_words(error: ValidationError) -> str:
    """What pydantic found, in one sentence."""
    parts = []
    for fault in error.errors(include_url=False):
        where = ".".join(str(step) for step in fault["loc"])
        message = fault["msg"].removeprefix("Value error, ")
        parts.append(f"{where}: {message}, not {fault['input']!r:.80}" if where else message)
    return "; ".join(parts)
