"""What an Inspector's own process answers is, byte for byte, what is answered in the scheduler's process."""

import json

import pytest

from kvledger.api import Inspector
from tests.support.inspected import Answer, ask, inspected, kill, process_of
from tests.support.stores import store

__all__ = ["store"]

J = "/v1/journals/1"
SEQ = 90

STATES = (
    "/tree?rows=20",
    "/tree?namespace=nobody",
    "/pools",
    "/pools/full/map?first_page=3&pages=9",
    "/pools/swa/map",
    "/eviction/full",
    "/eviction/swa?limit=3",
    "/requests",
    "/requests/r3",
    "/requests/not-there",
    "/leases",
    "/leases?limit=1&cursor=none",
    "/nodes/1",
    "/nodes/99999",
    "/slots/full/40",
    "/slots/swa/4000",
    "/pools/other/map",
)
"""Each is asked at SEQ: states, and refusals of many kinds."""

SETTLED = (*(f"{path}{'&' if '?' in path else '?'}at={SEQ}" for path in STATES), f"/diff?from=40&to={SEQ}")
STORED = (
    "/events?order=desc&limit=7",
    "/events?cursor=none",
    "/events/17",
    "/transactions?limit=3",
    "/transactions/2/events",
    "/anomalies",
    "/marks",
    "/request-history?request=r1",
    "/nodes/1/history",
    "/slots/full/40/history",
)
EXPLAIN = json.dumps({"tokens": list(range(30)), "namespace": "", "at": SEQ}).encode()


def asked(inspector: Inspector) -> dict[str, Answer]:
    """Every question that the process may answer, as it is answered now."""
    answers = {path: ask(inspector, J + path) for path in (*SETTLED, *STORED)}
    answers["compressed"] = ask(inspector, J + SETTLED[0], Accept_Encoding="gzip")
    answers["explain"] = ask(inspector, f"{J}/explain", method="POST", body=EXPLAIN)
    answers["no explanation"] = ask(
        inspector, f"{J}/explain", method="POST", body=EXPLAIN.replace(b"29]", b"true]")
    )
    answers["head"] = ask(inspector, J + SETTLED[0], method="HEAD")
    tag = dict(answers[SETTLED[0]].headers)["etag"]
    answers["not modified"] = ask(inspector, J + SETTLED[0], If_None_Match=tag)
    return answers


@pytest.mark.parametrize("reveal", [False, True], ids=["hidden", "revealed"])
def test_an_answer_of_the_own_process_is_that_of_the_schedulers_byte_for_byte(
    store: str, reveal: bool
) -> None:
    with inspected(store, reveal_tokens=reveal) as (inspector, _):
        process = process_of(inspector)
        assert ask(inspector, f"{J}/pools?at={SEQ}").status == 200
        before = process.answered
        apart = asked(inspector)
        assert (process.answered - before, process.missed) == (len(apart), 0)
        kill(process)
        here = asked(inspector)
        assert process.answered - before == len(apart)
        assert here == apart
        statuses = {answer.status for answer in apart.values()}
        assert {200, 304, 404, 422} <= statuses
        assert max(statuses) < 500


def test_an_answer_that_may_still_change_is_not_asked_of_the_own_process(store: str) -> None:
    with inspected(store) as (inspector, recorder):
        process = process_of(inspector)
        assert ask(inspector, f"{J}/pools?at={SEQ}").status == 200
        last = int(recorder.durable_seq)
        for path in (
            "/tree",
            "/pools",
            f"/tree?at={last}",
            f"/diff?from=40&to={last}",
            "/requests",
            "/chain",
        ):
            assert ask(inspector, J + path).status == 200, path
        assert ask(inspector, f"{J}/tree?at={last + 1}").status == 404
        assert ask(inspector, f"{J}/explain", method="POST", body=b'{"tokens": [1, 2]}').status == 200
        assert (process.answered, process.missed) == (1, 0)


def test_an_audit_runs_in_the_own_process_and_its_verdict_is_found_there(store: str) -> None:
    with inspected(store) as (inspector, _):
        begun = ask(inspector, f"{J}/audits", method="POST", body=b'{"chain": true}')
        assert begun.status == 202
        location = dict(begun.headers)["location"]
        while (told := ask(inspector, location).json)["ended_us"] is None:
            pass
        assert (told["state"], told["verdict"]["verdict"]) == ("done", "pass")
        assert [one["id"] for one in ask(inspector, f"{J}/audits").json["items"]] == [told["id"]]
        assert ask(inspector, f"{location}/cancel", method="POST", body=b"").json["state"] == "done"
        assert process_of(inspector).missed == 0
