"""The compiled core: built from the same sources, only where it is asked for, and not to be told from them.

`make compiled` builds a wheel in `build/wheel` and installs it into `build/compiled`, `make test-compiled`
runs the tests marked `compiled` there. The others are about a build that does not take place.
"""

import importlib
import importlib.machinery
import importlib.util
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from hatchling.builders.wheel import WheelBuilder

import kvledger
from kvledger.core import COMPILED
from tests.packaging.test_layout import ROOT, packaged_files, shipped_files
from tests.support.odd_arguments import lines, methods_without_a_call

SUFFIXES = tuple(importlib.machinery.EXTENSION_SUFFIXES)
REQUIRED = os.environ.get("KVLEDGER_REQUIRE_COMPILED") == "1"


def load_hook() -> ModuleType:
    """hatch_build.py, which is no part of the package."""
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


HOOK = load_hook()
TO_COMPILE = HOOK.compiled_modules(ROOT)
IN_C = [f"{module}.py" for module in HOOK.IN_C]


@pytest.fixture
def compiled() -> Path:
    """Where the compiled package lies that runs here."""
    if not COMPILED:
        if REQUIRED:
            pytest.fail("the compiled core is required, and the interpreted one runs", pytrace=False)
        pytest.skip("the interpreted core")
    assert kvledger.__file__ is not None
    return Path(kvledger.__file__).parent


@pytest.fixture
def compiled_wheel(compiled: Path) -> Path:
    """The wheel it was installed from."""
    (wheel,) = (ROOT / "build" / "wheel").glob("*.whl")
    return wheel


@pytest.mark.compiled
@pytest.mark.parametrize("module", TO_COMPILE + IN_C)
def test_each_module_that_is_compiled_runs_as_an_extension_module(compiled: Path, module: str) -> None:
    name = "kvledger." + module.removesuffix(".py").replace("/", ".")
    file = importlib.import_module(name).__file__
    assert file is not None
    assert file.endswith(SUFFIXES)
    assert (compiled / module).read_bytes() == (ROOT / module).read_bytes()


@pytest.mark.compiled
def test_a_compiled_wheel_is_the_pure_one_with_shared_objects_beside_the_sources(
    compiled_wheel: Path,
) -> None:
    files = packaged_files(compiled_wheel)
    objects = {name for name in files if name.endswith(SUFFIXES)}
    sources = {name: content for name, content in files.items() if name not in objects}
    assert sources == shipped_files()
    assert {name.partition(".")[0] + ".py" for name in objects} == {*TO_COMPILE, *IN_C}


@pytest.mark.compiled
def test_a_compiled_wheel_is_for_this_interpreter_and_puts_one_library_beside_the_package(
    compiled_wheel: Path,
) -> None:
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert compiled_wheel.name.startswith(f"kvledger-{kvledger.__version__}-{tag}-")
    with zipfile.ZipFile(compiled_wheel) as archive:
        tops = {name.partition("/")[0] for name in archive.namelist()}
        about = f"kvledger-{kvledger.__version__}.dist-info"
        assert "Root-Is-Purelib: false" in archive.read(f"{about}/WHEEL").decode().splitlines()
    (library,) = tops - {"kvledger", about}
    assert library.partition(".")[0].endswith("__mypyc")
    assert library.endswith(SUFFIXES)


@pytest.mark.compiled
def test_both_cores_answer_arguments_of_every_kind_in_the_same_words(compiled: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "tests.support.odd_arguments"]
    told = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
    assert told.stdout.splitlines() == ["interpreted", *lines()]


def test_every_method_that_takes_something_is_asked() -> None:
    assert methods_without_a_call() == []


def test_the_core_says_which_one_runs() -> None:
    state = importlib.import_module("kvledger.core.state")
    assert state.__file__ is not None
    assert COMPILED is not state.__file__.endswith(".py")
    assert COMPILED or not REQUIRED


def test_what_is_left_to_the_interpreter_is_there() -> None:
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "core").rglob("*.py")}
    assert {f"core/{name}.py" for name in HOOK.INTERPRETED} == modules - set(TO_COMPILE)
    assert all((ROOT / "journal" / f"{name}.py").is_file() for name in HOOK.JOURNAL_INTERPRETED)
    assert all(list((ROOT / "journal").glob(f"{pattern}.py")) for pattern in HOOK.JOURNAL)


@pytest.mark.parametrize("value", [None, "", "0"])
def test_nothing_is_compiled_where_nobody_asks(
    value: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(HOOK.VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(HOOK.VARIABLE, value)
    builder = WheelBuilder(str(ROOT))
    assert not [name for name in builder.config.dependencies if "mypy" in name]
    wheel = Path(next(builder.build(directory=str(tmp_path))))
    assert wheel.name == f"kvledger-{kvledger.__version__}-py3-none-any.whl"
    assert not [name for name in packaged_files(wheel) if name.endswith(SUFFIXES)]


def without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler -pthread")


def without_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HOOK.sysconfig, "get_path", lambda name: f"/no/such/{name}")


def with_another_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOOK.VARIABLE, "yes")


def unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    pass


@pytest.mark.parametrize(
    ("lacking", "version", "message"),
    [
        (without_a_compiler, "standard", "needs a C compiler and there is no 'no-such-compiler'"),
        (
            without_headers,
            "standard",
            "needs the headers of Python and there is no /no/such/include",
        ),
        (with_another_word, "standard", "KVLEDGER_COMPILE is 1 to compile the core"),
        (unchanged, "editable", "an editable install runs the sources"),
    ],
)
def test_a_build_that_cannot_compile_says_what_it_lacks_and_makes_no_wheel(
    lacking: Callable[[pytest.MonkeyPatch], None],
    version: str,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv(HOOK.VARIABLE, "1")
    builder = WheelBuilder(str(ROOT))
    assert any(name.startswith("mypy[mypyc]") for name in builder.config.dependencies)
    lacking(monkeypatch)
    with pytest.raises((RuntimeError, ValueError), match=message):
        next(builder.build(directory=str(tmp_path), versions=[version]))
    assert list(tmp_path.iterdir()) == []
