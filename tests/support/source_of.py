"""The source in Python of a module that stands beside one in C of the same name."""

import importlib
import importlib.util
from pathlib import Path
from types import ModuleType


def source_of(module: ModuleType) -> ModuleType:
    """The module as its source says, whichever one the package runs. Another one than the package's."""
    package, _, name = module.__name__.rpartition(".")
    path = Path(next(iter(importlib.import_module(package).__path__))) / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"{name}_source", path)
    assert spec is not None
    assert spec.loader is not None
    source = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(source)
    return source
