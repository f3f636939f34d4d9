"""Where a measurement was made: without this its figures mean nothing."""

import platform
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from kvledger.core import COMPILED


class Environment(BaseModel):
    """Machine, versions, and which of the two cores ran."""

    model_config = ConfigDict(frozen=True)

    cpu: str
    system: str
    python: str
    core: Literal["compiled", "interpreted"]
    versions: dict[str, str]

    def __str__(self) -> str:
        versions = ", ".join(f"{name} {number}" for name, number in self.versions.items())
        return f"{self.cpu}, {self.system}, Python {self.python}, {self.core} core, {versions}"


def environment() -> Environment:
    """This process's environment."""
    return Environment(
        cpu=_cpu_name(),
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        core="compiled" if COMPILED else "interpreted",
        versions={name: version(name) for name in ("kvledger", "numpy", "torch", "sqlalchemy")},
    )


def _cpu_name() -> str:
    """The processor as Linux names it, elsewhere as Python does."""
    listing = Path("/proc/cpuinfo")
    if listing.is_file():
        for line in listing.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
