"""The courses of the planted faults on the code as it is: nothing stops them, the walk and the audit pass.

Every test of a planted fault asserts this of its own courses; here it can be had without planting anything.
Not collected by itself: the plan of the mutants names it.
"""

import pytest

from tests.planted.evidence import Course, run
from tests.planted.table import CATALOGUES

COURSES = list(dict.fromkeys(c for variants in CATALOGUES.values() for v in variants for c in v.courses))


@pytest.mark.parametrize("course", COURSES, ids=str)
def test_a_course_runs_to_its_end_and_every_check_passes(course: Course) -> None:
    evidence = run(course)
    assert evidence.stopped is None, repr(evidence.stopped)
    assert evidence.walked is None, evidence.walked
    assert evidence.verdict.verdict == "pass", evidence.verdict.findings[:3]
