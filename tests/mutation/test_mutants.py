"""The tool that makes mutants: what it changes, what it leaves alone, and that planted ones run."""

import ast
from types import FunctionType

import pytest

from kvledger.journal.audit import recency
from tests.mutation.explained import EXPLAINED
from tests.mutation.live import ROOT, Live
from tests.mutation.operators import mutants, with_mutant
from tests.mutation.plan import TARGETS
from tests.mutation.report import explanations
from tests.mutation.run import expanded

SOURCE = '''
class Ring:
    """Words are left alone: 1 < 2."""

    def turn(self, by: int = 1) -> int:
        """As are these: 3 > 4."""
        if by < 0 and not self.free:
            raise ValueError(f"{by + 1} is below {0}")
        self.at += min(by, 2)
        return self.at
'''


def test_each_place_of_a_function_is_changed_in_every_way_and_words_are_not() -> None:
    told = [(m.operator, m.before, m.after) for m in mutants(SOURCE, "ring.py")]
    assert told == [
        ("if", "by < 0 and (not self.free)", "True"),
        ("if", "by < 0 and (not self.free)", "False"),
        ("and/or", "by < 0 and (not self.free)", "by < 0 or not self.free"),
        ("comparison", "by < 0", "by <= 0"),
        ("constant", "0", "1"),
        ("not", "not self.free", "self.free"),
        ("drop", "raise ValueError(f'{by + 1} is below {0}')", "pass"),
        ("drop", "self.at += min(by, 2)", "pass"),
        ("arithmetic", "self.at += min(by, 2)", "self.at -= min(by, 2)"),
        ("min/max", "min(by, 2)", "max(by, 2)"),
        ("constant", "2", "3"),
        ("return", "return self.at", "return None"),
    ]


def test_a_mutant_differs_from_the_right_code_in_one_place_and_keeps_its_name() -> None:
    made = mutants(SOURCE, "ring.py")
    texts = {ast.unparse(with_mutant(SOURCE, mutant)) for mutant in made}
    assert len(texts) == len(made)
    assert ast.unparse(ast.parse(SOURCE)) not in texts
    assert len({mutant.key for mutant in made}) == len(made)


def test_a_planted_mutant_runs_wherever_its_function_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    file = "journal/audit/recency.py"
    live = Live([file])
    rises = recency.Recency._rises
    assert isinstance(rises, FunctionType)
    monkeypatch.setattr(rises, "__code__", rises.__code__)  # put back in the end
    (mutant,) = (
        m
        for m in mutants(live.sources[file], file)
        if m.function == "Recency._rises" and m.operator == "comparison"
    )
    before = rises.__code__
    live.plant(mutant)
    assert rises is recency.Recency._rises
    assert rises.__code__ is not before
    assert rises.__code__.co_names == before.co_names


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_mutated_and_what_has_to_notice_is_there(target: str) -> None:
    plan = TARGETS[target]
    assert expanded(plan.files)
    paths = {name.partition("::")[0] for name in expanded((*plan.quick, *plan.thorough))}
    assert {path for path in paths if not (ROOT / path).is_file()} == set()


def test_every_explained_mutant_is_one_that_there_is() -> None:
    files = {key[0] for key in EXPLAINED}
    keys = {mutant.key for file in files for mutant in mutants((ROOT / file).read_text(), file)}
    assert {key for key in EXPLAINED if key not in keys} == set()


def test_the_document_tells_every_explained_mutant() -> None:
    document = (ROOT / "docs" / "mutation.md").read_text()
    assert "\n".join(explanations()) in document, "write it anew: python -m tests.mutation.report"
