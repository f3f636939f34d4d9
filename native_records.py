"""Writes the records of a module out as classes that mypyc makes native: what compiling the core begins with.

A decorator makes the records of the core from their fields (`event`, `record`, `equal_value`, `dataclass`);
what a decorator makes, mypyc leaves to the interpreter. Here each becomes the class that the decorator would
have made, with its methods in words. Fields, names and documentation are the source's; `dataclasses.fields`,
`__slots__`, pattern matching, copies, pickles and the look of a record are as there. A frozen one raises
AttributeError where it would be changed, not the class under it that `dataclasses` has for that.
"""

import ast

OPTIONS = {"event": {"eq": False}, "record": {"eq": False}, "equal_value": {}, "dataclass": {}}
"""What each decorator gives `dataclass`; that one itself is given it where it stands."""

_TOLD = '''
def _tell_fields(cls: Any, doc: str | None, hints: dict[str, str], hidden: list[str], options: Any) -> None:
    """Give a written out class what the decorator would have told of its fields."""
    fields: list[Any] = [
        (name, eval(hint, globals()), field(repr=name not in hidden)) for name, hint in hints.items()
    ]
    twin: Any = make_dataclass(cls.__name__, fields, **options)
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
        if isinstance(statement, ast.FunctionDef):
            # What tells type checkers of a decorator cannot be put on a compiled function.
            statement.decorator_list = []
        found = _options(statement)
        if found is None or not isinstance(statement, ast.ClassDef):
            body.append(statement)
            continue
        decorator, options = found
        name, (hints, hidden) = statement.name, _fields(statement)
        body.append(_class(statement, hints, options))
        doc = ast.get_docstring(statement, clean=False)
        body += ast.parse(f"_tell_fields({name}, {doc!r}, {hints!r}, {hidden!r}, {options!r})").body
        if decorator == "event":
            body += ast.parse(f"EVENTS[{name}.kind] = {name}").body
    last_import = max(at for at, node in enumerate(body) if isinstance(node, ast.Import | ast.ImportFrom))
    body[last_import + 1 : last_import + 1] = ast.parse(
        "from dataclasses import field, make_dataclass\nfrom typing import Any, Final" + _TOLD
    ).body
    return ast.unparse(ast.Module(body, tree.type_ignores)) + "\n"


def _options(statement: ast.stmt) -> tuple[str, dict[str, bool]] | None:
    """The decorator of a record and the options of its class, None for what is none."""
    if not isinstance(statement, ast.ClassDef) or not statement.decorator_list:
        return None
    (decorator,) = statement.decorator_list
    name = ast.unparse(decorator).partition("(")[0]
    if name not in OPTIONS:
        raise ValueError(f"class {statement.name}: no record is written out with @{name}")
    given = decorator.keywords if isinstance(decorator, ast.Call) else []
    options = {str(one.arg): bool(ast.literal_eval(one.value)) for one in given}
    options.pop("slots", None)
    return name, OPTIONS[name] | options


def _fields(record: ast.ClassDef) -> tuple[dict[str, str], list[str]]:
    """The type of each field, as it is written, and which are not shown."""
    hints, hidden = {}, []
    for statement in record.body:
        if isinstance(statement, ast.AnnAssign) and not _is_of_class(statement):
            name = ast.unparse(statement.target)
            hints[name] = ast.unparse(statement.annotation)
            if statement.value is not None:
                if ast.unparse(statement.value) != "field(repr=False)":
                    raise ValueError(f"class {record.name}: {name} has a default, which is not written out")
                hidden.append(name)
    return hints, hidden


def _is_of_class(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.AnnAssign) and ast.unparse(statement.annotation).startswith("ClassVar[")


def _class(record: ast.ClassDef, hints: dict[str, str], options: dict[str, bool]) -> ast.ClassDef:
    name, frozen = record.name, options.get("frozen", False)
    arguments = ", ".join(f"{field}: {hint}" for field, hint in hints.items())
    own, others = ("".join(f"{one}.{field}, " for field in hints) for one in ("self", "other"))
    lines = [f"def __init__(self, {arguments}) -> None:"]
    lines += [f"    self.{field}{': Final' if frozen else ''} = {field}" for field in hints]
    lines += ["def values(self) -> tuple[Any, ...]:", f"    return ({own})"]
    lines += ["def __reduce__(self) -> tuple[Any, ...]:", f"    return {name}, ({own})"]
    if options.get("eq", True):
        lines += ["def __eq__(self, other: object) -> Any:"]
        lines += [f"    return ({own}) == ({others}) if type(other) is {name} else NotImplemented"]
        if frozen:
            lines += ["def __hash__(self) -> int:", f"    return hash(({own}))"]
    kept: list[ast.stmt] = [
        statement
        for statement in record.body
        if not isinstance(statement, ast.AnnAssign) or _is_of_class(statement)
    ]
    made = ast.parse("\n".join(lines)).body
    return ast.ClassDef(name, record.bases, record.keywords, kept + made, [])
