"""`python -m tests.fuzz.run TARGET [libFuzzer's options]`: atheris on one of the three properties.

`make fuzz` calls it. New inputs go to `build/fuzz/TARGET`, and so does what breaks the property; a fault that
is found becomes a file of `tests/fuzz/corpus/TARGET`, which the tests replay.
"""

import importlib
import logging
import sys
from pathlib import Path
from typing import Any

from tests.fuzz.corpora import CORPUS, TARGETS, TELLING

FOUND = Path(__file__).resolve().parents[2] / "build" / "fuzz"

LIMITS = ("-timeout=20", "-rss_limit_mb=3072")
"""Seconds and memory of one input beyond which it is a fault."""


def main(target: str, options: list[str]) -> None:
    """Run until libFuzzer's options say otherwise, or the property breaks. Never returns."""
    if target not in TARGETS:
        raise SystemExit(f"{target!r} is no target: they are {', '.join(TARGETS)}")
    atheris: Any = importlib.import_module("atheris")
    logging.disable()  # each input would say what is missing beside its file
    found = FOUND / target
    found.mkdir(parents=True, exist_ok=True)
    with atheris.instrument_imports(include=["kvledger"]):
        module = importlib.import_module(f"tests.fuzz.{target}")
    for function in getattr(module, "COMPILED", ()):
        atheris.instrument_func(function)
    words = FOUND / f"{target}.dict"
    words.write_text("".join(f'"{_escaped(word)}"\n' for word in sorted({*TELLING, *module.WORDS} - {b""})))
    folders = [str(found), str(CORPUS / target)]
    arguments = [sys.argv[0], *LIMITS, f"-dict={words}", f"-artifact_prefix={found}-", *options, *folders]
    atheris.Setup(arguments, module.one)
    atheris.Fuzz()


def _escaped(word: bytes) -> str:
    """A word of libFuzzer's dictionary."""
    return "".join(f"\\x{byte:02x}" for byte in word)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "", sys.argv[2:])
