"""Mutants that no test can or need tell from the right code, each with the reason: `explained.toml`, read."""

import tomllib
from pathlib import Path

from tests.mutation.operators import Key

TOLD = tomllib.loads(Path(__file__).with_name("explained.toml").read_text())["mutant"]

EXPLAINED: dict[Key, str] = {
    (one["file"], one["function"], one["operator"], one["before"], one["after"], one.get("nth", 0)): one[
        "why"
    ]
    for one in TOLD
}
"""The reason by the mutant's key."""
