"""Writes the records of a module out as classes that mypyc makes native: what compiling the core begins with.

A decorator makes the records of `kvledger.core.events` from their fields (`event`, `dataclass`); what a
decorator makes, mypyc leaves to the interpreter. Here each becomes the class that the decorator would have
made, with `__init__`, `values` and, of frozen ones, `__eq__` and `__hash__` in words. Fields, names and
documentation are the source's; `dataclasses.fields`, `__slots__`, pattern matching and the look of a record
are as there.
"""

import ast

EVENT = "event"
FROZEN = "dataclass"
"""The decorators, the last one with arguments."""

_TOLD = '''
def _tell_fields(cls: Any, doc: str | None, hints: dict[str, str]) -> None:
    """Give a written out class what the decorator would have told of its fields."""
    twin: Any = make_dataclass(cls.__name__, [(name, eval(hint, globals())) for name, hint in hints.items()])
    told: dict[str, Any] = {"__doc__": doc, "__slots__": tuple(hints), "__match_args__": tuple(hints)}
    for name in ("__annotations__", "__repr__", "__dataclass_params__", "__dataclass_fields__"):
        told[name] = getattr(twin, name)
    for name, value in told.items():
        setattr(cls, name, value)
'''


def written_out(source: str) -> str:
    """The source of a module with its records written out."""
    tree = ast.parse(source)
    body: list[ast.stmt] = []
    for statement in tree.body:
        decorator = _decorator(statement)
        if isinstance(statement, ast.FunctionDef) and statement.name == EVENT:
            # What tells type checkers of a decorator cannot be put on a compiled function.
            statement.decorator_list = []
        if not isinstance(statement, ast.ClassDef) or decorator is None:
            body.append(statement)
            continue
        fields = _fields(statement)
        body.append(_class(statement, fields, frozen=decorator == FROZEN))
        doc = ast.get_docstring(statement, clean=False)
        body += ast.parse(f"_tell_fields({statement.name}, {doc!r}, {fields!r})").body
        if decorator == EVENT:
            body += ast.parse(f"EVENTS[{statement.name}.kind] = {statement.name}").body
    last_import = max(at for at, node in enumerate(body) if isinstance(node, ast.Import | ast.ImportFrom))
    body[last_import + 1 : last_import + 1] = ast.parse(
        "from dataclasses import make_dataclass\nfrom typing import Final" + _TOLD
    ).body
    return ast.unparse(ast.Module(body, tree.type_ignores)) + "\n"


def _decorator(statement: ast.stmt) -> str | None:
    """Which of the decorators a class has, None for none."""
    if not isinstance(statement, ast.ClassDef) or not statement.decorator_list:
        return None
    (decorator,) = statement.decorator_list
    name = ast.unparse(decorator).partition("(")[0]
    if name not in (EVENT, FROZEN):
        raise ValueError(f"class {statement.name}: no record is written out with @{name}")
    return name


def _fields(record: ast.ClassDef) -> dict[str, str]:
    """The type of each field, as it is written."""
    fields = {}
    for statement in record.body:
        if isinstance(statement, ast.AnnAssign) and not _is_of_class(statement):
            if statement.value is not None:
                raise ValueError(f"class {record.name}: {ast.unparse(statement)}: no default is written out")
            fields[ast.unparse(statement.target)] = ast.unparse(statement.annotation)
    return fields


def _is_of_class(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.AnnAssign) and ast.unparse(statement.annotation).startswith("ClassVar[")


def _class(record: ast.ClassDef, fields: dict[str, str], *, frozen: bool) -> ast.ClassDef:
    arguments = ", ".join(f"{name}: {hint}" for name, hint in fields.items())
    lines = [f"def __init__(self, {arguments}) -> None:"]
    lines += [f"    self.{name}{': Final' if frozen else ''} = {name}" for name in fields]
    every = "".join(f"self.{name}, " for name in fields)
    lines += ["def values(self) -> tuple[Any, ...]:", f"    return ({every})"]
    if frozen:
        lines += [
            "def __eq__(self, other: object) -> Any:",
            f"    return self.values() == other.values() if type(other) is {record.name} else NotImplemented",
            "def __hash__(self) -> int:",
            "    return hash(self.values())",
        ]
    kept: list[ast.stmt] = [
        statement
        for statement in record.body
        if not isinstance(statement, ast.AnnAssign) or _is_of_class(statement)
    ]
    made = ast.parse("\n".join(lines)).body
    return ast.ClassDef(record.name, record.bases, record.keywords, kept + made, [])
