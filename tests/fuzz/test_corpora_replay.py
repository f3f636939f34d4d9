"""What fuzzing starts from and what it found: no input breaks its property, nor do mutations of one.

`make fuzz` goes on from here with atheris, which sees what code an input reaches; this needs no atheris.
"""

import importlib
from collections.abc import Callable

import pytest

from tests.fuzz.corpora import CORPUS, TARGETS, inputs, mutations

MUTATIONS = {"event_decoder": 1_500, "trace_reader": 600, "parquet_reader": 400}


def property_of(target: str) -> Callable[[bytes], None]:
    one: Callable[[bytes], None] = importlib.import_module(f"tests.fuzz.{target}").one
    return one


@pytest.mark.parametrize("name", [f"{target}/{name}" for target in TARGETS for name in inputs(target)])
def test_no_input_of_the_corpus_breaks_the_property(name: str) -> None:
    target, _, _ = name.partition("/")
    property_of(target)((CORPUS / name).read_bytes())


@pytest.mark.parametrize("target", TARGETS)
def test_no_mutation_of_the_corpus_breaks_the_property(target: str) -> None:
    one = property_of(target)
    for what, data in mutations(target, count=MUTATIONS[target], seed=1):
        try:
            one(data)
        except BaseException as error:
            error.add_note(f"{target}, {what}: {data!r:.2000}")
            raise
