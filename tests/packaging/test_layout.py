"""How the package is put together: links for the checkout, folders for the wheel, one way to import.

The folders at the top of the repository are imported as `kvledger.*`. Editable installs and type
checkers see them through links in `src/kvledger`; wheel and sdist are built from the folders. These
tests hold the two views equal. The rules on who imports whom are import-linter's (`make check`).
"""

import ast
import importlib
import importlib.resources
import re
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import alembic
import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import kvledger

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "kvledger"

PACKAGES = ("core", "journal", "api", "tools")
FOLDER_OF = {**{name: name for name in PACKAGES}, "migrations": "alembic"}


def shipped_files() -> dict[str, bytes]:
    """Path inside the package -> content, for every file that must reach an installation."""
    files = {name: (SOURCE / name).read_bytes() for name in ("__init__.py", "py.typed")}
    for package, folder in FOLDER_OF.items():
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                files[f"{package}/{path.relative_to(ROOT / folder).as_posix()}"] = path.read_bytes()
    return files


def python_files() -> Iterator[Path]:
    for folder in (*FOLDER_OF.values(), "tests"):
        yield from sorted((ROOT / folder).rglob("*.py"))
    yield SOURCE / "__init__.py"


def packaged_files(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {
            name.removeprefix("kvledger/"): archive.read(name)
            for name in archive.namelist()
            if name.startswith("kvledger/")
        }


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(next(WheelBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("wheel")))))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(next(SdistBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("sdist")))))


@pytest.mark.parametrize("package", FOLDER_OF)
def test_each_link_is_relative_and_leads_to_its_folder(package: str) -> None:
    link = SOURCE / package
    assert link.is_symlink(), f"{link} must be a link, committed as one"
    assert link.readlink() == Path("../..") / FOLDER_OF[package]
    assert link.resolve() == ROOT / FOLDER_OF[package]
    assert link.is_dir()


def test_the_source_folder_holds_links_and_two_files_only() -> None:
    names = {path.name for path in SOURCE.iterdir() if path.name != "__pycache__"}
    assert names == {"__init__.py", "py.typed", *FOLDER_OF}


@pytest.mark.parametrize("package", PACKAGES)
def test_each_package_is_imported_from_its_folder(package: str) -> None:
    module = importlib.import_module(f"kvledger.{package}")
    assert module.__file__ is not None
    assert Path(module.__file__).samefile(ROOT / package / "__init__.py")


def test_the_migrations_are_found_in_the_package() -> None:
    migrations = importlib.resources.files("kvledger") / "migrations"
    assert migrations.is_dir()
    assert (migrations / "env.py").is_file()


def test_the_folder_of_migrations_does_not_shadow_the_library() -> None:
    assert not (ROOT / "alembic" / "__init__.py").exists()
    assert alembic.__file__ is not None
    assert not Path(alembic.__file__).is_relative_to(ROOT / "alembic")


def test_the_version_is_the_one_in_pyproject() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert kvledger.__version__ == project["version"]


def test_no_code_imports_the_folders_by_their_bare_names() -> None:
    bare = []
    for path in python_files():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
            match node:
                case ast.Import(names=names):
                    imported = [alias.name for alias in names]
                case ast.ImportFrom(module=str(name), level=0):
                    imported = [name]
                case ast.ImportFrom():
                    imported = [f".{node.module or ''}"]
                case _:
                    continue
            for name in imported:
                if name.partition(".")[0] in {"", "src", *PACKAGES}:
                    bare.append(f"{path.relative_to(ROOT)}:{node.lineno}: {name}")
    assert bare == []


def test_the_wheel_holds_every_file_of_every_folder_under_its_import_name(wheel: Path) -> None:
    packaged = packaged_files(wheel)
    assert packaged == shipped_files()
    assert {"core/__init__.py", "migrations/env.py"} <= packaged.keys()


def test_the_wheel_puts_nothing_beside_the_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.partition("/")[0] for name in archive.namelist()}
    assert tops == {"kvledger", f"kvledger-{kvledger.__version__}.dist-info"}


def test_a_wheel_built_from_the_sdist_is_the_same(wheel: Path, sdist: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    unpacked = tmp_path / f"kvledger-{kvledger.__version__}"
    assert (unpacked / "alembic.ini").is_file()
    assert (unpacked / "hatch_build.py").is_file()
    again = Path(next(WheelBuilder(str(unpacked)).build(directory=str(tmp_path / "wheel"))))
    assert packaged_files(again) == packaged_files(wheel)


def test_the_tested_version_of_every_dependency_is_pinned_and_in_range() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = {}
    for line in lines:
        if line and not line.startswith("#"):
            pin = re.fullmatch(r"([A-Za-z0-9._-]+)==([0-9][A-Za-z0-9.]*)", line)
            assert pin, f"a pin is name==version and nothing else: {line!r}"
            pins[canonicalize_name(pin[1])] = pin[2]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    requirements = map(Requirement, [*project["dependencies"], *(r for extra in extras for r in extra)])
    for requirement in requirements:
        if requirement.name == project["name"]:
            assert requirement.extras <= project["optional-dependencies"].keys()
            continue
        pinned = pins.get(canonicalize_name(requirement.name))
        assert pinned is not None, f"{requirement.name} is not pinned"
        assert requirement.specifier.contains(pinned), f"{pinned} is outside {requirement}"
