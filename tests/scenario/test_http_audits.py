"""Somebody on call audits a journal from the page: it runs beside the service and ends in a verdict."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from kvledger.api.audits import runner
from kvledger.api.audits.private import hidden_verdict
from kvledger.api.audits.source import BoundedSource, Cancelled
from kvledger.api.told.hiding import Hiding
from kvledger.journal import Journal
from kvledger.journal.audit import Verdict, audit
from kvledger.journal.audit.verdict import Finding
from kvledger.tools.cli import main
from tests.support.service import DEADLINE_SECONDS, client_over, pruned, recorded
from tests.support.stores import change

AUDITS = "/v1/journals/1/audits"


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("audits"))


def ended(client: TestClient, location: str) -> dict[str, Any]:
    """The audit once it is over."""
    while True:
        told: dict[str, Any] = client.get(location).json()
        if told["ended_us"] is not None:
            return told


class Gate:
    """An audit that waits to be let through, so that a test decides what happens meanwhile."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def audit(self, source: BoundedSource, **how: Any) -> Verdict:
        self.reached.set()
        assert self.opened.wait(DEADLINE_SECONDS)
        return audit(source, **how)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate()
    monkeypatch.setattr(runner, "audit", gate.audit)
    yield gate
    gate.opened.set()


@pytest.mark.parametrize("whole", [True, False])
def test_an_audit_gives_the_verdict_of_the_command_line(
    database: Path, tmp_path: Path, whole: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    path = database if whole else pruned(tmp_path)[0]
    assert main(["audit", str(path), "--json"]) == (0 if whole else 1)
    printed = json.loads(capsys.readouterr().out)
    with client_over(path) as client:
        begun = client.post(AUDITS, json={"chain": True})
        assert begun.status_code == 202
        told = ended(client, begun.headers["Location"])
    assert told["state"] == "done"
    assert told["verdict"] == printed
    assert told["verdict"]["verdict"] == ("pass" if whole else "unverified")
    assert told["done_events"] == told["total_events"] == printed["counts"]["events"]
    assert told["ended_us"] >= told["started_us"]


def test_an_audit_up_to_a_seq_reads_no_further(database: Path) -> None:
    with client_over(database) as client:
        told = ended(client, client.post(AUDITS, json={"upto_seq": 500, "chain": False}).headers["Location"])
    assert 400 < told["verdict"]["counts"]["events"] <= 500
    statuses = {one["id"]: one["status"] for one in told["verdict"]["invariants"]}
    assert statuses["chain"] == "not_checked"
    assert statuses["locked-full"] == "verified"


def test_an_audit_finds_what_was_changed_in_the_database(tmp_path: Path) -> None:
    path = recorded(tmp_path)
    change(f"sqlite:///{path}", "UPDATE events SET undone = 1 WHERE seq = 700")
    with client_over(path) as client:
        told = ended(client, client.post(AUDITS).headers["Location"])
    assert told["state"] == "done"
    assert told["verdict"]["verdict"] == "fail"
    assert any(one["seq"] == 700 for one in told["verdict"]["findings"])


def test_an_audit_of_what_is_not_there_is_refused(tmp_path: Path) -> None:
    path, begins = pruned(tmp_path)
    with client_over(path) as client:
        last = client.get("/v1/journals/1").json()["last_seq"]
        assert client.post(AUDITS, json={"upto_seq": last + 1}).status_code == 404
        assert client.post(AUDITS, json={"upto_seq": begins - 2}).status_code == 410
        told = ended(client, client.post(AUDITS).headers["Location"])
        assert told["total_events"] == last - begins + 1
        assert told["verdict"]["checkpoint_seq"] == begins - 1


def test_one_audit_runs_few_wait_and_more_are_refused(database: Path, gate: Gate) -> None:
    with client_over(database, audits_waiting=2) as client:
        begun = [client.post(AUDITS) for _ in range(3)]
        assert [one.status_code for one in begun] == [202, 202, 202]
        assert gate.reached.wait(DEADLINE_SECONDS)
        states = [client.get(one.headers["Location"]).json()["state"] for one in begun]
        assert states == ["running", "waiting", "waiting"]
        refused = client.post(AUDITS)
        assert refused.status_code == 429
        assert int(refused.headers["Retry-After"]) > 0
        gate.opened.set()
        assert {ended(client, one.headers["Location"])["state"] for one in begun} == {"done"}
        assert client.post(AUDITS).status_code == 202


def test_an_audit_that_is_cancelled_ends_and_the_next_one_runs(database: Path, gate: Gate) -> None:
    with client_over(database) as client:
        running, waiting, last = (client.post(AUDITS).headers["Location"] for _ in range(3))
        assert gate.reached.wait(DEADLINE_SECONDS)
        assert client.post(f"{waiting}/cancel").json()["state"] == "cancelled"
        assert client.post(f"{running}/cancel").json()["state"] == "running"
        gate.opened.set()
        told = ended(client, running)
        assert (told["state"], told["verdict"], told["problem"]) == ("cancelled", None, None)
        assert ended(client, last)["state"] == "done"
        assert client.post(f"{last}/cancel").json()["state"] == "done"


def test_a_source_that_is_told_to_stop_stops_between_two_transactions(database: Path) -> None:
    with Journal.open(database) as store:
        source = BoundedSource(store.reader(), upto_seq=1_000)
        transactions = source.transactions()
        next(transactions)
        source.stop.set()
        with pytest.raises(Cancelled):
            next(transactions)


def test_a_service_that_goes_down_cancels_its_audits(database: Path, gate: Gate) -> None:
    with client_over(database) as client:
        client.post(AUDITS)
        assert gate.reached.wait(DEADLINE_SECONDS)
        audits = client.app.state.audits  # type: ignore[attr-defined]
        gate.opened.set()
    assert {told.state for _, told in audits.of(1)} <= {"cancelled", "done"}


def test_an_audit_that_meets_a_fault_says_so_and_nothing_more(
    database: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(source: BoundedSource, **how: Any) -> Verdict:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(runner, "audit", broken)
    with client_over(database) as client:
        told = ended(client, client.post(AUDITS).headers["Location"])
    assert told["state"] == "failed"
    assert "secret" not in told["problem"]
    assert "secret" in caplog.text


def test_only_the_last_audits_are_remembered_newest_first(database: Path) -> None:
    with client_over(database, audits_kept=3) as client:
        locations = []
        for _ in range(5):
            locations.append(client.post(AUDITS, json={"chain": False, "upto_seq": 50}).headers["Location"])
            ended(client, locations[-1])
        listed = client.get(AUDITS, params={"limit": 2}).json()
        more = client.get(AUDITS, params={"limit": 2, "cursor": listed["next"]}).json()
        ids = [one["id"] for one in listed["items"] + more["items"]]
        assert ids == [location.rpartition("/")[2] for location in reversed(locations)][:3]
        assert more["next"] is None
        assert client.get(locations[0]).status_code == 404


def test_an_audit_belongs_to_its_journal(tmp_path: Path) -> None:
    path = recorded(tmp_path)
    recorded(tmp_path)
    with client_over(path) as client:
        location = client.post(AUDITS).headers["Location"]
        assert client.get(location.replace("/journals/1/", "/journals/2/")).status_code == 404
        assert client.get("/v1/journals/2/audits").json()["items"] == []


@pytest.mark.parametrize("name", ["tenant-aurora", "it's", "both 'and\"", "", "\\'", "naïve\n"])
def test_a_finding_does_not_tell_a_namespace_where_they_are_hidden(name: str) -> None:
    sentence = f"request 'r1' of namespace {name!r} inserts into {'other'!r}"
    finding = Finding(invariant="namespace", sentence=sentence, seq=1, transaction=1)
    verdict: Verdict = Verdict.model_construct(findings=(finding,))  # type: ignore[call-arg]
    hide = Hiding(reveals=False)
    told = hidden_verdict(verdict, hide).findings[0].sentence
    assert (
        told == f"request 'r1' of namespace {hide.namespace(name)!r} inserts into {hide.namespace('other')!r}"
    )
    assert hidden_verdict(verdict, Hiding(reveals=True)).findings[0].sentence == sentence
