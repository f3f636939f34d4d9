"""Builds the core compiled, where KVLEDGER_COMPILE=1 asks for it: the same sources, as extension modules.

Two are prepared: of `WRITTEN_OUT` the records are written out as classes first (native_records.py).

The wheel then holds, beside the sources of `kvledger.core` and of what hands its events to a writing process,
what mypyc makes of them, and at its root the one library that they share. Python prefers an extension module
to the source of the same name, so removing the shared objects gives the interpreted core back. Without the
variable this hook does nothing.

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

APART = "journal/apart"
BESIDE_THE_CORE = ("flat", "plans", "ring")
"""Modules of `APART` that the scheduler's thread spends its time in too."""

IN_C = ("core/row_passes", f"{APART}/packed")
"""Modules beside whose source in Python stands one in C, which is built instead."""

WRITTEN_OUT = ("events", "results")
"""Modules of the core whose records mypyc would leave to the interpreter."""

MYPY_INI = """\
[mypy]

[mypy-torch.*,pydantic.*]
follow_imports = skip
ignore_missing_imports = True
"""
"""Torch and pydantic are used by modules that are not compiled: reading their types would take most of the
time. The strict check of all types is `make check`."""


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


def compiled_modules(core: Path) -> list[str]:
    """The modules of a core that are compiled, by their path in it."""
    modules = sorted(path.relative_to(core) for path in core.rglob("*.py"))
    return [path.as_posix() for path in modules if path.with_suffix("").as_posix() not in INTERPRETED]


def compile_here() -> None:
    """Compile the copy in the working directory, each module beside its source."""
    # Imported here because they are installed only where something is compiled.
    import numpy
    from mypyc.build import mypycify
    from setuptools import Extension, setup

    core = Path("kvledger/core")
    Path("mypy.ini").write_text(MYPY_INI, encoding="utf-8")
    extensions = mypycify(
        [
            "--config-file=mypy.ini",
            *(f"{core}/{module}" for module in compiled_modules(core)),
            *(f"kvledger/{APART}/{module}.py" for module in BESIDE_THE_CORE),
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
    shutil.copytree(root / "core", package / "core", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    written_out = runpy.run_path(str(root / "native_records.py"))["written_out"]
    for module in WRITTEN_OUT:
        records = package / "core" / f"{module}.py"
        records.write_text(written_out(records.read_text(encoding="utf-8")), encoding="utf-8")
    for name in ("__init__.py", "py.typed"):
        shutil.copyfile(root / "src" / "kvledger" / name, package / name)
    apart = package / APART
    apart.mkdir(parents=True)
    # Packages without what else is in them: nothing is known of it, and none of it is compiled.
    for folder in (apart, apart.parent):
        (folder / "__init__.py").touch()
    for module in BESIDE_THE_CORE:
        shutil.copyfile(root / APART / f"{module}.py", apart / f"{module}.py")
    for module in IN_C:
        # Of the source in Python the types are needed, by those that are compiled.
        for suffix in (".c", ".py"):
            shutil.copyfile(root / f"{module}{suffix}", package / f"{module}{suffix}")


def _suffix() -> str:
    """How the file name of an extension module of this interpreter ends."""
    return str(sysconfig.get_config_var("EXT_SUFFIX"))


if __name__ == "__main__":
    compile_here()
