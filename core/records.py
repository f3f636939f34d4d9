"""What makes a class a record: named values that nobody changes after they were put together."""

from dataclasses import dataclass, field
from typing import Any, dataclass_transform


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
def record(cls: type) -> type:
    """Make a slotted record without equality, frozen for type checkers and cheap to build at run time."""
    made: Any = dataclass(slots=True, eq=False)(cls)
    return made  # type: ignore[no-any-return]
