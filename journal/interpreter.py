"""A fresh interpreter beside this one that finds the same modules: never a fork, whose locks may be held."""

import os
import subprocess
import sys
from collections.abc import Sequence
from multiprocessing.spawn import get_executable
from typing import Any

OWN_VARIABLES = "KVLEDGER_"
"""Begins the names of settings in the environment, the token's among them: the process is told what it needs
and nothing more."""


def current_folder() -> str:
    """Where the process is now: a store may be named by a relative path, and it may go elsewhere."""
    try:
        return os.getcwd()
    except OSError:
        # The folder was removed; an interpreter would not even start in it.
        return os.sep


def fresh_interpreter(
    program: str, *, folder: str, stdin: int, keeping: Sequence[int] = (), own_session: bool = False
) -> "subprocess.Popen[bytes]":
    """Start an interpreter in `folder` that runs the text `program`, with `stdin` and the files `keeping`.

    With `own_session` no signal to this process's group or terminal reaches it. Raises OSError where it
    cannot be started, ValueError where nobody knows how.
    """
    executable = get_executable()
    if not executable:
        raise ValueError("nobody knows where this interpreter's program is")
    if getattr(sys, "frozen", False):
        raise ValueError("the interpreter is part of a packed program, which would begin a second time")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(OWN_VARIABLES)}
    places = _places(folder)
    plain = [place for place in places if os.pathsep not in place]
    environment["PYTHONPATH"] = os.pathsep.join(plain)
    if len(plain) < len(places):
        # That variable has no way to name such a place, and would name others that its parts happen to be.
        program = f"import sys; sys.path[:0] = {places!a}\n{program}"
    return subprocess.Popen(
        [executable, "-P", "-c", program],
        stdin=stdin,
        stdout=subprocess.DEVNULL,
        cwd=folder,
        env=environment,
        pass_fds=keeping,
        start_new_session=own_session,
    )


def _places(folder: str) -> list[str]:
    """Where this interpreter looks for modules; "" (a notebook, a script from stdin) is the folder it is in.

    What is no text, it passes over too.
    """
    places: list[Any] = sys.path
    return [place or folder for place in places if isinstance(place, str)]
