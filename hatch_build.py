"""Builds the core compiled, where KVLEDGER_COMPILE=1 asks for it: the same sources, as extension modules.

Two are prepared: of `WRITTEN_OUT` the records are written out as classes first (native_records.py).

The wheel then holds, beside the sources of `kvledger.core`, of what hands its events to a writing process and
of replay and audit, what mypyc makes of them, and at its root the one library that they share. Python prefers
an extension module to the source of the same name, so removing the shared objects gives the interpreted core
back. Without the variable this hook does nothing.

The folders at the top are no packages by themselves, so a copy laid out as `kvledger/` is compiled, in a
temporary folder that lives until the wheel is written. A process of its own does it: mypyc compiles what lies
below the working directory, and setuptools and mypy end the process when something fails.
"""

import os
import runpy
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

VARIABLE = "KVLEDGER_COMPILE"

INTERPRETED = {
    "__init__": "imports and names",
    "changes/__init__": "imports and names",
    # What callers hold takes any argument and refuses it with an error of ours. Compiled, it would check the
    # arguments that are declared as str before it sees them, and raise TypeError. (A `Count` is not checked.)
    "cache": "callers hold it",
    "caller_transaction": "callers hold it",
    "device_pools": "callers hold it",
    "config": "a pydantic model",
    "records": "a decorator, of which type checkers are told by another",
    "row_passes": "row_passes.c answers the same",
    "sinks": "callers implement its protocols and make its records",
    "pools": "callers implement its protocol",
    "ids": "names for types",
    "errors": "exceptions are raised rarely, and pickled",
    # These run rarely, or wait for something slower than the interpreter.
    "check": "a walk on demand",
    "digest": "SHA-256 of everything",
    "kv_checksum": "torch",
    "kv_tensors": "torch",
    "reset": "a walk over everything",
    "views": "copies for callers",
}
"""Modules of the core that are left to the interpreter, and why. Every other one is compiled."""

JOURNAL = (
    # What the scheduler's thread spends its time in too.
    "apart/flat",
    "apart/plans",
    "apart/ring",
    # What follows the events and looks at them. The rest is calls of the database and of numpy.
    "audit/[a-z]*",
    "effects",
    "fits",
    "replay",
    "state",
    "structure",
    "walk",
)
"""Modules of the journal that are compiled, by the patterns of their paths in it."""

JOURNAL_INTERPRETED = {
    "audit/findings": "pydantic models",
    "audit/verdict": "pydantic models",
}
"""What fits those patterns and is left to the interpreter, and why."""

IN_C = ("core/row_passes", "journal/apart/packed")
"""Modules beside whose source in Python stands one in C, which is built instead."""

WRITTEN_OUT = ("events", "results")
"""Modules of the core whose records mypyc would leave to the interpreter."""

MYPY_INI = """\
[mypy]

[mypy-torch.*,pydantic.*,sqlalchemy.*,alembic.*,pyarrow.*,tenacity.*]
follow_imports = skip
ignore_missing_imports = True
"""
"""Used by modules that are not compiled: reading their types would take most of the time. The strict check of
all types is `make check`."""


class CompiledCore(BuildHookInterface):
    """Adds the compiled modules of the core to a wheel."""

    def dependencies(self) -> list[str]:
        """What compiling takes, besides a C compiler: numpy for its types."""
        return ["mypy[mypyc]>=2.4", "numpy>=1.26,<3", "setuptools"] if _asked_for() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, before the wheel is put together."""
        if not _asked_for():
            return
        if version == "editable":
            raise RuntimeError(
                f"{VARIABLE}=1 compiles wheels; an editable install runs the sources: unset it, "
                f"or see `make compiled`"
            )
        _check_compiler()
        # It lives as long as the hook does: until the wheel is written.
        self._folder = tempfile.TemporaryDirectory(prefix="kvledger-compile-")
        built = Path(self._folder.name)
        _copy_sources(Path(self.root), built)
        command = [sys.executable, "-P", str(Path(__file__).resolve())]
        if subprocess.run(command, cwd=built, check=False).returncode:
            raise RuntimeError(
                f"the core could not be compiled, the reason stands above; without {VARIABLE}=1 "
                f"the wheel is built without compiling anything"
            )
        objects = sorted(built.glob("*" + _suffix())) + sorted((built / "kvledger").rglob("*" + _suffix()))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        for path in objects:
            build_data["force_include"][str(path)] = path.relative_to(built).as_posix()

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was compiled: the wheel has it."""
        if _asked_for():
            self._folder.cleanup()


def compiled_modules(package: Path) -> list[str]:
    """The modules of a package that are compiled, by their path in it."""
    core, journal = package / "core", package / "journal"
    modules = {path for path in core.rglob("*.py") if _name(path, core) not in INTERPRETED}
    for pattern in JOURNAL:
        found = journal.glob(f"{pattern}.py")
        modules |= {path for path in found if _name(path, journal) not in JOURNAL_INTERPRETED}
    return sorted(path.relative_to(package).as_posix() for path in modules)


def _name(path: Path, folder: Path) -> str:
    return path.relative_to(folder).with_suffix("").as_posix()


def compile_here() -> None:
    """Compile the copy in the working directory, each module beside its source."""
    # Imported here because they are installed only where something is compiled.
    import numpy
    from mypyc.build import mypycify
    from setuptools import Extension, setup

    package = Path("kvledger")
    Path("mypy.ini").write_text(MYPY_INI, encoding="utf-8")
    extensions = mypycify(
        [
            "--config-file=mypy.ini",
            *(f"{package}/{module}" for module in compiled_modules(package)),
        ],
        opt_level="3",
        debug_level="0",
        target_dir="c",
    )
    extensions += [
        Extension(
            f"kvledger.{module.replace('/', '.')}",
            [f"kvledger/{module}.c"],
            include_dirs=[numpy.get_include()],
            extra_compile_args=["-O3"],
        )
        for module in IN_C
    ]
    for extension in extensions:
        # mypyc makes an error of any warning, and compilers to come will have new ones.
        extension.extra_compile_args.append("-Wno-error")
    setup(name="kvledger-core", ext_modules=extensions, script_args=["--quiet", "build_ext", "--inplace"])


def _asked_for() -> bool:
    """Whether the core is to be compiled."""
    value = os.environ.get(VARIABLE, "")
    if value not in ("", "0", "1"):
        raise ValueError(f"{VARIABLE} is 1 to compile the core, 0 or nothing not to: found {value!r}")
    return value == "1"


def _check_compiler() -> None:
    """Say what is missing before a compiler says it at length."""
    command = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    if shutil.which(command[0]) is None:
        raise RuntimeError(
            f"{VARIABLE}=1 needs a C compiler and there is no {command[0]!r}: install one (Debian: gcc and "
            f"libc6-dev), or set CC to it"
        )
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if not header.is_file():
        raise RuntimeError(
            f"{VARIABLE}=1 needs the headers of Python and there is no {header}: install them (Debian: "
            f"python3-dev)"
        )


def _copy_sources(root: Path, into: Path) -> None:
    """The part of the package that is compiled, under the names it is imported by."""
    package = into / "kvledger"
    for name in ("core", "journal"):
        shutil.copytree(root / name, package / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    written_out = runpy.run_path(str(root / "native_records.py"))["written_out"]
    for module in WRITTEN_OUT:
        records = package / "core" / f"{module}.py"
        records.write_text(written_out(records.read_text(encoding="utf-8")), encoding="utf-8")
    for name in ("__init__.py", "py.typed"):
        shutil.copyfile(root / "src" / "kvledger" / name, package / name)


def _suffix() -> str:
    """How the file name of an extension module of this interpreter ends."""
    return str(sysconfig.get_config_var("EXT_SUFFIX"))


if __name__ == "__main__":
    compile_here()
