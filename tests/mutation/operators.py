"""Every way in which one place of a function can be wrong, one after the other.

A mutant changes one node of one function's syntax tree: a comparison, an operator, a condition, a constant,
a statement. Left alone are words (f-strings, messages of exceptions, docstrings), annotations, defaults,
decorators and what stands outside functions: no test of behaviour could tell the wrong from the right there,
or the wrong one does not get as far as being imported.
"""

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace

Definition = ast.FunctionDef | ast.AsyncFunctionDef

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}

ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}

PARTS = (ast.comprehension, ast.keyword, ast.withitem, ast.ExceptHandler, ast.match_case)
"""Nodes that are neither statement nor expression, and hold some."""

CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}


Key = tuple[str, str, str, str, str, int]
"""What names a mutant as long as its function reads the same: file, function, operator, ..., nth."""


@dataclass(frozen=True)
class Mutant:
    """One wrong place.

    `function` is its qualified name, `defined` the line where it (or its first decorator) begins;
    `statement` the line of the innermost statement around the place; `site` counts the places of the file;
    `nth` tells mutants of one function apart that read the same.
    """

    file: str
    function: str
    defined: int
    line: int
    column: int
    statement: int
    operator: str
    before: str
    after: str
    site: int
    nth: int = 0

    @property
    def key(self) -> Key:
        """What names it."""
        return self.file, self.function, self.operator, self.before, self.after, self.nth

    def __str__(self) -> str:
        again = f" ({self.nth + 1})" if self.nth else ""
        where = f"{self.file}:{self.line} {self.function}"
        return f"{where}: {self.operator}: {self.before} -> {self.after}{again}"


@dataclass(frozen=True)
class _Site:
    """A place in the tree: `parent.field`, or one of its elements, and what is put there."""

    parent: ast.AST
    field: str
    index: int | None
    wrong: ast.AST
    operator: str
    shown: ast.AST  # what is told as "before"
    shown_wrong: ast.AST | str  # and as "after"
    statement: int

    def put(self) -> None:
        if self.index is None:
            setattr(self.parent, self.field, self.wrong)
        else:
            getattr(self.parent, self.field)[self.index] = self.wrong


def mutants(source: str, file: str) -> list[Mutant]:
    """All mutants of a file, in the order of their places."""
    made: list[Mutant] = []
    seen: dict[Key, int] = {}
    number = 0
    for name, definition in functions(ast.parse(source)):
        first = min([definition.lineno, *(d.lineno for d in definition.decorator_list)])
        for site in _sites(definition):
            shown: ast.AST = site.shown
            after = site.shown_wrong if isinstance(site.shown_wrong, str) else _text(site.shown_wrong)
            mutant = Mutant(
                file,
                name,
                first,
                getattr(shown, "lineno", site.statement),
                getattr(shown, "col_offset", 0),
                site.statement,
                site.operator,
                _text(shown),
                after,
                number,
            )
            number += 1
            nth = seen.get(mutant.key, 0)
            seen[mutant.key] = nth + 1
            made.append(replace(mutant, nth=nth))
    return made


def with_mutant(source: str, mutant: Mutant) -> ast.Module:
    """The tree of the file with the mutant in it."""
    tree = ast.parse(source)
    number = 0
    for _, definition in functions(tree):
        for site in _sites(definition):
            if number == mutant.site:
                site.put()
                return ast.fix_missing_locations(tree)
            number += 1
    raise LookupError(str(mutant))


def functions(tree: ast.Module) -> Iterator[tuple[str, Definition]]:
    """Functions and methods with their qualified names; a nested one is part of the one around it."""
    for statement in tree.body:
        if isinstance(statement, Definition):
            yield statement.name, statement
        elif isinstance(statement, ast.ClassDef):
            for inner in statement.body:
                if isinstance(inner, Definition):
                    yield f"{statement.name}.{inner.name}", inner


def _text(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 100 else text[:97] + "..."


def _sites(definition: Definition) -> Iterator[_Site]:
    for index, statement in enumerate(definition.body):
        if index or not _is_words(statement):
            yield from _in_statement(definition, "body", index, statement)


def _is_words(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def _in_statement(parent: ast.AST, field: str, index: int, statement: ast.stmt) -> Iterator[_Site]:
    line = statement.lineno
    droppable = (
        (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call | ast.YieldFrom))
        or isinstance(statement, ast.AugAssign | ast.Delete | ast.Raise | ast.Break | ast.Continue)
        or (isinstance(statement, ast.Assign) and not isinstance(statement.targets[0], ast.Name))
    )
    if droppable:
        yield _Site(parent, field, index, ast.Pass(), "drop", statement, "pass", line)
    if isinstance(statement, ast.Raise):
        return
    if isinstance(statement, ast.Return) and statement.value is not None and not _is_none(statement.value):
        nothing = ast.Constant(None)
        yield _Site(statement, "value", None, nothing, "return", statement, "return None", line)
    if isinstance(statement, ast.If | ast.While):
        for truth in (True, False) if isinstance(statement, ast.If) else (False,):
            word = "if" if isinstance(statement, ast.If) else "while"
            yield _Site(statement, "test", None, ast.Constant(truth), word, statement.test, f"{truth}", line)
    if isinstance(statement, ast.AugAssign) and type(statement.op) in ARITHMETIC:
        wrong = copy.deepcopy(statement)
        wrong.op = ARITHMETIC[type(statement.op)]()
        yield _Site(statement, "op", None, wrong.op, "arithmetic", statement, wrong, line)
    if isinstance(statement, Definition):
        for at, inner in enumerate(statement.body):
            yield from _in_statement(statement, "body", at, inner)
        return
    yield from _in_children(statement, line)


def _in_children(node: ast.AST, line: int) -> Iterator[_Site]:
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "keywords") and not isinstance(node, ast.Call):
            continue
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(child, ast.stmt):
                assert index is not None
                yield from _in_statement(node, field, index, child)
            elif isinstance(child, ast.JoinedStr):
                continue
            elif isinstance(child, ast.expr):
                yield from _in_expression(node, field, index, child, line)
            elif isinstance(child, PARTS):
                yield from _in_children(child, line)


def _in_expression(
    parent: ast.AST, field: str, index: int | None, node: ast.expr, line: int
) -> Iterator[_Site]:
    for operator, wrong in _wrong(node):
        yield _Site(parent, field, index, wrong, operator, node, wrong, line)
    yield from _in_children(node, line)


def _wrong(node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.Compare):
        for at, operation in enumerate(node.ops):
            compared = copy.deepcopy(node)
            compared.ops[at] = COMPARISONS[type(operation)]()
            yield "comparison", compared
    elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        worked = copy.deepcopy(node)
        worked.op = ARITHMETIC[type(node.op)]()
        yield "arithmetic", worked
    elif isinstance(node, ast.BoolOp):
        joined = copy.deepcopy(node)
        joined.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield "and/or", joined
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "not", copy.deepcopy(node.operand)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield "constant", ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield "constant", ast.Constant(node.value + 1)
    elif isinstance(node, ast.IfExp):
        yield "choice", copy.deepcopy(node.body)
        yield "choice", copy.deepcopy(node.orelse)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS:
        called = copy.deepcopy(node)
        called.func = ast.Name(CALLS[node.func.id], ast.Load())
        yield "min/max", called
