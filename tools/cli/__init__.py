"""The command line: `kvledger`. One module per command; what they do lives elsewhere.

Exit status: 0 done (and passed, where there is a verdict), 1 a violation or wrong KV, 2 could not run: bad
input, an unknown database, or an error. Bad input gets one sentence on stderr.
"""

import os
import sys
import traceback
from collections.abc import Sequence

import typer
from pydantic import ValidationError

from kvledger.core.errors import CacheError
from kvledger.tools.cli.audit import audit_command
from kvledger.tools.cli.bench import bench_app
from kvledger.tools.cli.output import COULD_NOT_RUN, OK, complain
from kvledger.tools.cli.replay import replay_command
from kvledger.tools.cli.run import run_command
from kvledger.tools.cli.show import show_app

INTERRUPTED = 130

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
app.command("replay")(replay_command)
app.add_typer(show_app, name="show")
app.add_typer(bench_app, name="bench")


@app.callback()
def _welcome(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; `arguments` default to those of the process."""
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
    except BrokenPipeError:
        # Whoever read the output has seen enough. Python would complain once more while it shuts down.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except Exception:
        # A fault of this program must not look like the verdict "violation", which is what 1 means.
        traceback.print_exc()
        return COULD_NOT_RUN
    return status if isinstance(status, int) else OK


def _in_words(error: ValidationError) -> str:
    """What pydantic found, in one sentence."""
    parts = []
    for fault in error.errors(include_url=False):
        where = ".".join(str(step) for step in fault["loc"])
        message = fault["msg"].removeprefix("Value error, ")
        parts.append(f"{where}: {message}, not {fault['input']!r:.80}" if where else message)
    return "; ".join(parts)
