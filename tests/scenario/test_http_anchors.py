"""Somebody kept the head of a journal and has the service hold the journal against it."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from kvledger.api.audits import anchors
from kvledger.core.errors import JournalError
from kvledger.journal import Journal
from kvledger.journal.anchor import new_key, write_anchor
from kvledger.journal.audit.verdict import TAIL_EARLIER, TAIL_KNOWN, TAIL_REFUTED, TAIL_UNKNOWN
from kvledger.tools.cli import main
from tests.scenario.test_http_audits import AUDITS, ended
from tests.support.service import client_over, pruned, recorded
from tests.support.stores import change

PRIVATE, PUBLIC = new_key()
OTHER = new_key()[1].decode()

Document = dict[str, Any]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded(tmp_path_factory.mktemp("anchors"), checkpoint_every=300)


@pytest.fixture
def client(database: Path) -> Iterator[TestClient]:
    with client_over(database) as client:
        yield client


def anchor_of(path: Path, *, signed: bool = False) -> Document:
    """What `kvledger anchor` prints of the journal in a database."""
    with Journal.open(path) as store:
        anchor = store.reader(1).anchor()
    document: Document = json.loads(write_anchor(anchor, private_key=PRIVATE if signed else None))
    return document


def audited(path: Path, **body: object) -> dict[str, Any]:
    with client_over(path) as client:
        begun = client.post(AUDITS, json=body)
        assert begun.status_code == 202, begun.text
        return ended(client, begun.headers["Location"])


def cut(path: Path, anchor: Document) -> None:
    change(f"sqlite:///{path}", f"DELETE FROM events WHERE txn >= {anchor['number'] - 3}")
    change(f"sqlite:///{path}", f"DELETE FROM transactions WHERE number >= {anchor['number'] - 3}")


def replace_with_another(path: Path, anchor: Document) -> None:
    path.unlink()
    recorded(path.parent, seed=8)


def leave(path: Path, anchor: Document) -> None:
    pass


@pytest.mark.parametrize("key", [None, PUBLIC.decode(), OTHER], ids=["no key", "its key", "another key"])
@pytest.mark.parametrize("signed", [False, True], ids=["unsigned", "signed"])
@pytest.mark.parametrize("done", [leave, cut, replace_with_another])
def test_an_anchor_gives_the_verdict_that_it_gives_on_the_command_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    done: Callable[[Path, Document], None],
    signed: bool,
    key: str | None,
) -> None:
    path = recorded(tmp_path, requests=20)
    anchor = anchor_of(path, signed=signed)
    done(path, anchor)
    kept, key_file = tmp_path / "anchor.json", tmp_path / "public.pem"
    kept.write_text(json.dumps(anchor))
    key_file.write_text(key or "")
    options = [] if key is None else ["--public-key", str(key_file)]
    passes = done is leave and (key is None or (signed and key != OTHER))
    command = ["audit", str(path), "--journal", "1", "--anchor", str(kept), "--json", *options]
    assert main(command) == (0 if passes else 1)
    printed = json.loads(capsys.readouterr().out)
    told = audited(path, anchor={"document": anchor, "public_key": key})
    assert told["verdict"] == printed
    assert told["verdict"]["verdict"] == ("pass" if passes else "fail")
    assert told["verdict"]["tail"] == (TAIL_KNOWN if passes else TAIL_REFUTED)
    if key is None:
        assert told["signature"] == ("not_checked" if signed else "none")
    else:
        assert told["signature"] == ("valid" if signed and key != OTHER else "invalid")


def test_an_anchor_from_before_what_was_pruned_is_no_violation_and_says_what_would_help(
    tmp_path: Path,
) -> None:
    whole = recorded(tmp_path, checkpoint_every=100)
    with Journal.open(whole) as store:
        first = next(store.reader(1).transactions())
        epoch = store.reader(1).info.epoch
    early = {
        "anchor": 1,
        "epoch": epoch,
        "number": first.number,
        "seq": first.last_seq,
        "hash": first.hash.hex(),
    }
    assert audited(whole, anchor={"document": early})["verdict"]["tail"] == TAIL_KNOWN
    (tmp_path / "late").mkdir()
    path, _ = pruned(tmp_path / "late")
    with Journal.open(path) as store:
        early["epoch"] = store.reader(1).info.epoch
    verdict = audited(path, anchor={"document": early})["verdict"]
    assert (verdict["verdict"], verdict["tail"]) == ("unverified", TAIL_EARLIER)
    assert any("an anchor that was taken later" in note for note in verdict["notes"])


def test_an_anchor_proves_the_end_also_of_an_audit_that_goes_only_so_far(database: Path) -> None:
    told = audited(database, upto_seq=500, anchor={"document": anchor_of(database)})
    assert told["verdict"]["counts"]["events"] <= 500
    assert told["verdict"]["tail"] == TAIL_KNOWN


def test_without_an_anchor_the_end_is_not_known(database: Path) -> None:
    for body in ({}, {"chain": False}, {"anchor": None, "chain": False}):
        told = audited(database, **body)
        assert (told["signature"], told["verdict"]["tail"]) == (None, TAIL_UNKNOWN)


def changed(**fields: object) -> Callable[[Document], Document]:
    return lambda anchor: {"document": anchor | fields}


def keyed(key: object) -> Callable[[Document], Document]:
    return lambda anchor: {"document": anchor, "public_key": key}


@pytest.mark.parametrize(
    "made",
    [
        changed(anchor=3),
        changed(anchor=True),
        changed(anchor=2.5),
        changed(anchor="2"),
        changed(anchor=1),
        changed(epoch=""),
        changed(epoch="x" * 65),
        changed(epoch="half a pair \ud800"),
        changed(number=-1),
        changed(number=True),
        changed(seq=2**53),
        changed(seq="12"),
        changed(hash="00"),
        changed(hash="zz" * 40),
        changed(hash="00" * 40 + "\n"),
        changed(checkpoint_seq=None),
        changed(checkpoint_hash=None),
        changed(checkpoint_hash="00" * 33),
        changed(signature="00"),
        changed(signature="00" * 5_000),
        changed(more=1),
        keyed(""),
        keyed("no key"),
        keyed(PRIVATE.decode()),
        keyed(PUBLIC.decode() * 2),
        keyed(PUBLIC.decode().replace("MCow", "MCoW")),
        keyed(PUBLIC.decode().replace("PUBLIC", "PRIVATE")),
        keyed(7),
        lambda anchor: anchor,
        lambda anchor: {"document": json.dumps(anchor)},
        lambda anchor: {"document": [anchor]},
        lambda anchor: {"public_key": PUBLIC.decode()},
        lambda anchor: {"document": anchor, "path": "/etc/passwd"},
    ],
)
def test_what_is_no_anchor_or_no_key_is_refused_and_begins_nothing(
    client: TestClient, database: Path, made: Callable[[Document], Document]
) -> None:
    body = json.dumps({"anchor": made(anchor_of(database))})
    refused = client.post(AUDITS, content=body, headers={"Content-Type": "application/json"})
    assert refused.status_code == 422
    assert len(refused.content) < 4_000
    assert client.get(AUDITS).json()["items"] == []


def test_an_anchor_without_the_chain_is_refused(client: TestClient, database: Path) -> None:
    refused = client.post(AUDITS, json={"chain": False, "anchor": {"document": anchor_of(database)}})
    assert refused.status_code == 422
    assert "held against the chain" in refused.json()["detail"]


def test_a_signature_that_cannot_be_checked_here_is_said_to_be_so(
    client: TestClient, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*given: object, **how: object) -> None:
        raise JournalError("signing needs the package cryptography: pip install 'kvledger[sign]'")

    monkeypatch.setattr(anchors, "kept_anchor", missing)
    given = {"document": anchor_of(database, signed=True), "public_key": PUBLIC.decode()}
    refused = client.post(AUDITS, json={"anchor": given})
    assert refused.status_code == 409
    assert "kvledger[sign]" in refused.json()["detail"]
