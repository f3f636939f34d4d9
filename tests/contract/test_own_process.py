"""What an Inspector's own process answers is, byte for byte, what is answered in the scheduler's process."""

import json
from collections.abc import Iterator

import pytest

from kvledger.api import Inspector
from kvledger.api.apart import OwnProcess
from kvledger.api.apart.attempts import Attempts
from kvledger.journal import Recorder
from tests.support.inspected import Answer, ask, inspected, kill, process_of
from tests.support.postgres import TEMPLATE, execute
from tests.support.stores import STORES

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


@pytest.fixture(scope="module", params=STORES)
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a store, of each kind in turn, for all tests here: nobody writes once they look."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path_factory.mktemp('store') / 'run.db'}"
    else:
        server, name = request.getfixturevalue("postgresql_server"), "own_process"
        execute(server, f"CREATE DATABASE {name} TEMPLATE {TEMPLATE} STRATEGY FILE_COPY")
        yield server.url(name)
        execute(server, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="module")
def service(database: str) -> Iterator[tuple[Inspector, Recorder]]:
    """One service for all tests that do not reveal tokens: to start a process takes seconds."""
    with inspected(database) as running:
        yield running


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


def up(inspector: Inspector) -> OwnProcess:
    """The process once it answers: it starts with the first test, and anew where one killed it."""
    process = process_of(inspector)
    process.attempts = Attempts()
    before = process.answered
    while process.answered == before:
        assert ask(inspector, f"{J}/pools?at={SEQ}").status == 200
    return process


def assert_the_same(inspector: Inspector) -> None:
    """Ask all that the process may answer, kill it, and ask again."""
    process = up(inspector)
    before, missed = process.answered, process.missed
    apart = asked(inspector)
    assert (process.answered - before, process.missed - missed) == (len(apart), 0)
    kill(process)
    here = asked(inspector)
    assert process.answered - before == len(apart)
    assert here == apart
    statuses = {answer.status for answer in apart.values()}
    assert {200, 304, 404, 422} <= statuses
    assert max(statuses) < 500


def test_an_answer_that_may_still_change_is_not_asked_of_the_own_process(
    service: tuple[Inspector, Recorder],
) -> None:
    inspector, recorder = service
    process = up(inspector)
    before = process.answered, process.missed
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
    assert (process.answered, process.missed) == before


def test_an_audit_runs_in_the_own_process_and_its_verdict_is_found_there(
    service: tuple[Inspector, Recorder],
) -> None:
    inspector, _ = service
    process = up(inspector)
    missed, before = process.missed, {one["id"] for one in ask(inspector, f"{J}/audits").json["items"]}
    begun = ask(inspector, f"{J}/audits", method="POST", body=b'{"chain": true}')
    assert begun.status == 202
    location = dict(begun.headers)["location"]
    while (told := ask(inspector, location).json)["ended_us"] is None:
        pass
    assert (told["state"], told["verdict"]["verdict"]) == ("done", "pass")
    now = {one["id"] for one in ask(inspector, f"{J}/audits").json["items"]}
    assert now - before == {told["id"]}
    assert ask(inspector, f"{location}/cancel", method="POST", body=b"").json["state"] == "done"
    assert process.missed == missed


def test_an_answer_of_the_own_process_is_that_of_the_schedulers_byte_for_byte(
    service: tuple[Inspector, Recorder],
) -> None:
    inspector, _ = service
    assert_the_same(inspector)


def test_where_tokens_are_revealed_an_answer_is_the_same_byte_for_byte_too(store: str) -> None:
    with inspected(store, reveal_tokens=True) as (inspector, _):
        assert_the_same(inspector)
