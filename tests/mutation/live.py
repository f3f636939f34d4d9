"""Puts other code into the functions of modules that are loaded already.

A function keeps its identity, so that everybody who imported it, the tables of changes and the registers of
checks run the other code. Meant for a forked process that ends afterwards: nothing is put back.
"""

import ast
import gc
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType

from tests.mutation.operators import Definition, Mutant, functions, with_mutant

ROOT = Path(__file__).parents[2]

Place = tuple[str, str, int]
"""File under the root, qualified name, first line."""


class Live:
    """The functions of some files, as they are loaded now."""

    def __init__(self, files: list[str]) -> None:
        self.sources = {file: (ROOT / file).read_text() for file in files}
        by_path = {str(ROOT / file): file for file in files}
        paths: dict[str, str | None] = {}
        self.functions: dict[Place, list[FunctionType]] = defaultdict(list)
        for held in gc.get_objects():
            if type(held) is not FunctionType:
                continue
            code = held.__code__
            if code.co_filename not in paths:
                paths[code.co_filename] = by_path.get(str(Path(code.co_filename).resolve()))
            file = paths[code.co_filename]
            if file is not None:
                self.functions[file, code.co_qualname, code.co_firstlineno].append(held)

    def plant(self, mutant: Mutant) -> None:
        """Run `mutant` from now on. LookupError where its function is not loaded."""
        tree = with_mutant(self.sources[mutant.file], mutant)
        held = self.functions[mutant.file, mutant.function, mutant.defined]
        if not held:
            raise LookupError(f"{mutant.file}: {mutant.function} is not loaded")
        if held[0].__code__.co_freevars == ("__class__",):
            # A method keeps the cell that `super()` looks into, also where that call is what was left out.
            _keep_class(tree, mutant.function)
        code = dict(_codes(self._compiled(tree, mutant.file)))[mutant.function, mutant.defined]
        for function in held:
            function.__code__ = code

    def watch(self) -> set[tuple[str, int]]:
        """The set into which, from now on, the file and line of each statement goes that is run."""
        reached: set[tuple[str, int]] = set()
        for file, source in self.sources.items():
            tree = ast.parse(source)
            for _, definition in functions(tree):
                _watched(definition, file)
            for (name, line), code in _codes(self._compiled(ast.fix_missing_locations(tree), file)):
                for function in self.functions[file, name, line]:
                    function.__globals__["__reached__"] = reached.add
                    function.__code__ = code
        return reached

    def _compiled(self, tree: ast.Module, file: str) -> CodeType:
        code: CodeType = compile(tree, str(ROOT / file), "exec", dont_inherit=True)
        return code


def _codes(code: CodeType) -> Iterator[tuple[tuple[str, int], CodeType]]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield (constant.co_qualname, constant.co_firstlineno), constant
            yield from _codes(constant)


def _keep_class(tree: ast.Module, name: str) -> None:
    for found, definition in functions(tree):
        if found == name:
            definition.body.append(ast.Expr(ast.Name("__class__", ast.Load())))
    ast.fix_missing_locations(tree)


def _watched(definition: Definition, file: str) -> None:
    """Let each statement of a function tell, before it is run, that it is."""
    for node in ast.walk(definition):
        for field in ("body", "orelse", "finalbody"):
            body = getattr(node, field, None)
            if not isinstance(body, list) or not body or not isinstance(body[0], ast.stmt):
                continue
            told: list[ast.stmt] = []
            for index, statement in enumerate(body):
                words = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
                if not (words and not index) and not isinstance(statement, ast.Nonlocal | ast.Global):
                    place = ast.Tuple([ast.Constant(file), ast.Constant(statement.lineno)], ast.Load())
                    call = ast.Call(ast.Name("__reached__", ast.Load()), [place], [])
                    told.append(ast.copy_location(ast.Expr(call), statement))
                told.append(statement)
            setattr(node, field, told)
