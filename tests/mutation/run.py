"""Mutation score of the tree, the transaction and the audit: `python -m tests.mutation.run` in the root.

Draws mutants, tries each against the tests that reach its statement, and writes a line of JSON for each.
Survivors have to be in `explained.py`; any other makes the exit status 1. docs/mutation.md tells the figures.
"""

import argparse
import hashlib
import json
import pickle
import random
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from tests.mutation.explained import EXPLAINED
from tests.mutation.live import ROOT, Live
from tests.mutation.operators import Key, Mutant, mutants
from tests.mutation.plan import SAMPLE, SEED, TARGETS, Target
from tests.mutation.report import results
from tests.mutation.trial import Copies, Trial


def drawn(files: Sequence[str], sample: int, seed: int) -> list[Mutant]:
    """A sample of the mutants of some files; 0 for all of them. More of it begins with the same ones."""
    made = [mutant for file in sorted(files) for mutant in mutants((ROOT / file).read_text(), file)]
    random.Random(seed).shuffle(made)
    return made[:sample] if sample else made


def expanded(patterns: Iterable[str]) -> list[str]:
    """The files that patterns name, by path under the root; node ids as they are."""
    named: list[str] = []
    for pattern in patterns:
        found = [pattern] if "::" in pattern else sorted(map(_under_root, ROOT.glob(pattern)))
        assert found, f"there is no {pattern}"
        named += found
    return named


def _under_root(path: Path) -> str:
    return str(path.relative_to(ROOT))


def survivors(path: Path) -> set[Key]:
    """Keys of the mutants that survived, by a file of results."""
    return {key for key, (_, outcome) in results([path]).items() if outcome == "survived"}


Reached = dict[str, tuple[set[tuple[str, int]], float]]
"""By test: the statements it runs, as file and line, and its seconds of CPU."""


class Mutation:
    """The plugin that takes the place of pytest's loop over what it has collected."""

    def __init__(self, target: Target, chosen: list[Mutant], out: Path) -> None:
        self.target = target
        self.chosen = chosen
        self.out = out
        self.trials: list[tuple[Mutant, Trial]] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Look what each test reaches, then try the mutants."""
        if session.testsfailed:
            raise session.Interrupted("the tests could not be collected")
        for path, name in self.target.once:
            held = (item.getparent(pytest.Module) for item in session.items if item.nodeid.startswith(path))
            module = next(held, None)
            if module is not None:
                getattr(module.obj, name)()
        copies = Copies(session, Live(expanded(self.target.files)))
        known = self._looked(session.items, copies)
        reached = {item: known[item.nodeid][0] for item in session.items}
        cost = {item.nodeid: known[item.nodeid][1] for item in session.items}
        _say(f"{len(session.items)} tests, {sum(cost.values()):.0f} CPU s; {len(self.chosen)} mutants")
        kills: Counter[pytest.Item] = Counter()
        late = tuple(expanded(self.target.thorough))
        thorough = {item for item in session.items if item.nodeid.startswith(late)}
        with self.out.open("a") as out:
            for number, mutant in enumerate(self.chosen, 1):
                place = (mutant.file, mutant.statement)
                items = [item for item in session.items if place in reached[item]]
                if mutant.key in EXPLAINED:
                    items = [item for item in items if item not in thorough]
                # What has killed much for its price goes first; a mutant is dead after a test or two.
                items.sort(key=lambda item: (item in thorough, cost[item.nodeid] / (1 + kills[item])))
                trial = copies.tried(mutant, items, cost) if items else Trial("survived", "", 0, 0.0)
                if trial.outcome == "killed":
                    kills[items[trial.tests - 1]] += 1
                self.trials.append((mutant, trial))
                out.write(json.dumps({**vars(mutant), **vars(trial)}) + "\n")
                out.flush()
                if trial.outcome != "killed":
                    _say(f"{number:>4} {trial.outcome} {trial.tests} tests {trial.cpu_s:.1f} s: {mutant}")
        return True

    def _looked(self, items: list[pytest.Item], copies: Copies) -> Reached:
        """What each test reaches and costs; kept between runs, as long as the mutated files stay the same."""
        files = sorted(expanded(self.target.files))
        text = "".join((ROOT / file).read_text() for file in files)
        digest = hashlib.sha256(text.encode()).hexdigest()
        path = ROOT / "build" / f"reached-{digest[:16]}.pickle"
        known: Reached = pickle.loads(path.read_bytes()) if path.exists() else {}
        for number, item in enumerate(items):
            if item.nodeid not in known:
                known[item.nodeid] = copies.reached(item)
            if number % 100 == 99:
                _say(f"looked at {number + 1} of {len(items)} tests")
                path.write_bytes(pickle.dumps(known))
        path.write_bytes(pickle.dumps(known))
        return known


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    """Exit status 0 where all mutants are dead or explained, else 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=sorted(TARGETS))
    parser.add_argument("--sample", type=int, default=SAMPLE, help="how many mutants to draw; 0: all")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--skip", type=int, default=0, help="how many of the drawn ones were tried already")
    parser.add_argument("--only", help="only mutants whose file and function contain this")
    parser.add_argument(
        "--again", type=Path, help="only what survived by this file of results, and is not explained"
    )
    parser.add_argument("--quick", action="store_true", help="leave out the thorough tests")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "mutants.jsonl")
    given = parser.parse_args()
    target = TARGETS[given.target]
    chosen = drawn(expanded(target.files), given.sample, given.seed)[given.skip :]
    if given.only:
        chosen = [mutant for mutant in chosen if given.only in f"{mutant.file} {mutant.function}"]
    if given.again:
        again = survivors(given.again) - set(EXPLAINED)
        chosen = [mutant for mutant in chosen if mutant.key in again]
    given.out.parent.mkdir(exist_ok=True)
    mutation = Mutation(target, chosen, given.out)
    options = ["-q", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "-o", "timeout=0", "--capture=no"]
    tests = expanded((*target.quick, *(() if given.quick else target.thorough)))
    status = pytest.main([*options, *tests], plugins=[mutation])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        return int(status)
    told = Counter(trial.outcome for _, trial in mutation.trials)
    left = [m for m, trial in mutation.trials if trial.outcome == "survived" and m.key not in EXPLAINED]
    for mutant, trial in mutation.trials:
        if trial.outcome != "survived" and mutant.key in EXPLAINED:
            print(f"explained, and yet {trial.outcome} by {trial.by}: {mutant}")
    print(f"{given.target}: {len(chosen)} mutants, {dict(told)}, {len(left)} survivors not explained")
    for mutant in left:
        print(f"  {mutant}")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
