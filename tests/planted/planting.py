"""Puts wrong code in the place of right code for the length of a test.

A wrong line is planted by substitution in the source of a function, which must hold the right line exactly
once: where the code moves on, its variant breaks loudly. The function keeps its identity and gets other code,
so that everybody who imported it, and the tables of changes, run the wrong one.
"""

import __future__

import ast
import inspect
import textwrap
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

import pytest


class Planting:
    """Plants faults, and takes them out again by way of pytest's `monkeypatch`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def edit(self, function: Callable[..., Any] | property, *edits: tuple[str, str], **names: object) -> None:
        """Run `function` with each (right, wrong) piece of its source exchanged.

        `names` are what the wrong code uses and the module does not import. AssertionError for a right piece
        that is not there exactly once.
        """
        plain = function.fget if isinstance(function, property) else function
        assert isinstance(plain, FunctionType), f"{function!r} is no plain function"
        assert not plain.__code__.co_freevars, f"{plain.__qualname__} closes over other names"
        for name, value in names.items():
            assert name not in plain.__globals__, f"{plain.__module__} has a {name} of its own"
            self._monkeypatch.setitem(plain.__globals__, name, value)
        self._monkeypatch.setattr(plain, "__code__", with_edits(plain, edits))

    def put(self, where: object, name: str, wrong: object) -> None:
        """Put `wrong` where `where.name` is, which must exist."""
        self._monkeypatch.setattr(where, name, wrong)

    def put_item(self, table: dict[Any, Any], key: object, wrong: object) -> None:
        """Put `wrong` into a table that has `key`."""
        assert key in table
        self._monkeypatch.setitem(table, key, wrong)


def with_edits(function: FunctionType, edits: tuple[tuple[str, str], ...]) -> CodeType:
    """The code of `function` with pieces of its source exchanged."""
    source = textwrap.dedent(inspect.getsource(function))
    for right, wrong in edits:
        found = source.count(right)
        assert found == 1, f"{function.__qualname__} holds {found} times, not once: {right!r}"
        source = source.replace(right, wrong)
    tree = ast.parse(source)
    definition = tree.body[0]
    assert isinstance(definition, ast.FunctionDef)
    definition.decorator_list = []
    made: dict[str, Any] = {}
    flags = __future__.annotations.compiler_flag
    name = f"<planted in {function.__qualname__}>"
    exec(compile(tree, name, "exec", flags=flags), function.__globals__, made)
    code: CodeType = made[function.__name__].__code__
    return code
