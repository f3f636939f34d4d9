"""Records written out for the compiler are what their decorators make, but for being written out."""

import copy
import dataclasses
import importlib
import pickle
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

import pytest

from tests.packaging.test_compiled_core import HOOK
from tests.packaging.test_layout import ROOT

written_out = runpy.run_path(str(ROOT / "native_records.py"))["written_out"]


@pytest.fixture(params=HOOK.WRITTEN_OUT)
def both(request: pytest.FixtureRequest) -> Iterator[tuple[ModuleType, ModuleType]]:
    """A module, and the same from what the compiler is given."""
    right = importlib.import_module(f"kvledger.core.{request.param}")
    source = (Path(ROOT) / "core" / f"{request.param}.py").read_text(encoding="utf-8")
    made = ModuleType(f"written_out_{request.param}")
    sys.modules[made.__name__] = made
    exec(compile(written_out(source), made.__name__, "exec"), vars(made))
    yield right, made
    del sys.modules[made.__name__]


def records(module: ModuleType) -> dict[str, Any]:
    """Its record classes."""
    return {
        name: value
        for name, value in vars(module).items()
        if dataclasses.is_dataclass(value) and isinstance(value, type) and value.__module__ == module.__name__
    }


def told(cls: Any, module: ModuleType) -> dict[str, object]:
    """All that a class tells of itself."""
    hints = {
        name: hint
        for name, hint in get_type_hints(cls, vars(module)).items()
        if name not in ("kind", "version")
    }
    return {
        "doc": cls.__doc__,
        "slots": cls.__slots__,
        "match": cls.__match_args__,
        "hints": {name: str(hint).replace(module.__name__, "module") for name, hint in hints.items()},
        "fields": [
            (one.name, str(one.type).replace(module.__name__, "module"), one.repr)
            for one in dataclasses.fields(cls)
        ],
        "params": str(cls.__dataclass_params__),
        "kind": (getattr(cls, "kind", None), getattr(cls, "version", None)),
        "bases": [base.__name__ for base in cls.__mro__],
        "hash": cls.__hash__ is None,
        "properties": {name for name, value in vars(cls).items() if isinstance(value, property)},
    }


@pytest.mark.interpreted
def test_a_written_out_record_tells_of_itself_what_the_source_does(
    both: tuple[ModuleType, ModuleType],
) -> None:
    right, made = both
    assert records(right).keys() == records(made).keys()
    for name, cls in records(right).items():
        assert told(records(made)[name], made) == told(cls, right), name
    if hasattr(right, "EVENTS"):
        assert {kind: cls.__name__ for kind, cls in made.EVENTS.items()} == {
            kind: cls.__name__ for kind, cls in right.EVENTS.items()
        }


@pytest.mark.interpreted
def test_a_written_out_record_behaves_as_the_source_does(both: tuple[ModuleType, ModuleType]) -> None:
    right, made = both
    for name, cls in records(right).items():
        names = cls.__slots__
        for values in (range(len(names)), range(1, 1 + len(names))):
            one, other = cls(*values), records(made)[name](*values)
            assert repr(one) == repr(other)
            assert [getattr(other, field) for field in names] == list(values)
            assert (one == cls(*values)) is (other == type(other)(*values))
            assert one != other
            assert other != type(other)(*reversed(values)) or len(values) == 1
            if cls.__hash__ not in (None, object.__hash__):
                assert hash(one) == hash(other)
            for copied in (
                pickle.loads(pickle.dumps(other)),
                copy.deepcopy(other),
                dataclasses.replace(other),
            ):
                assert type(copied) is type(other)
                assert repr(copied) == repr(other)
        by_name = dict.fromkeys(names, 7)
        assert repr(type(other)(**by_name)) == repr(cls(**by_name))


@pytest.mark.parametrize(
    "source",
    [
        "@record\nclass A:\n    a: int = 3\n",
        "@other\nclass A:\n    a: int\n",
        "@dataclass(eq=wanted)\nclass A:\n    a: int\n",
    ],
    ids=["a default", "another decorator", "an option that is no constant"],
)
def test_what_cannot_be_written_out_is_refused(source: str) -> None:
    with pytest.raises(ValueError, match=r"class A|malformed"):
        written_out("from a import b\n" + source)
