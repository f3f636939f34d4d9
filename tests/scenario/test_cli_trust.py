"""The commands of trust and retrieval: token policies, anchors, look-ups, histories and differences."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from kvledger.journal import Journal
from kvledger.tools.cli import main

RUN = ["run", "--requests", "12", "--seed", "5", "--no-verify-kv", "--durability", "background"]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trust") / "run.db"
    assert main([*RUN, "--db", str(path), "--json"]) == 0
    return path


@pytest.fixture
def own(database: Path, tmp_path: Path) -> Path:
    """A copy of the database that a test may change."""
    path = tmp_path / "own.db"
    path.write_bytes(database.read_bytes())
    return path


class Shell:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object) -> tuple[int, str, str]:
        self._capsys.readouterr()
        status = main([str(argument) for argument in arguments])
        out, err = self._capsys.readouterr()
        return status, out, err

    def document(self, *arguments: object) -> Any:
        status, out, err = self(*arguments, "--json")
        assert (status, err) == (0, "")
        return json.loads(out)


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys)


def cut_tail(path: Path) -> None:
    file = sqlite3.connect(path)
    (last,) = file.execute("SELECT max(number) FROM transactions").fetchone()
    for table, column in (("checkpoints", "number"), ("events", "txn"), ("transactions", "number")):
        file.execute(f"DELETE FROM {table} WHERE {column} >= ?", (last - 3,))
    file.commit()
    file.close()


@pytest.mark.parametrize("policy", ["hash", "none"])
def test_run_under_a_token_policy_passes_and_says_so(shell: Shell, tmp_path: Path, policy: str) -> None:
    key = tmp_path / "key"
    key.write_bytes(bytes(range(16)))
    more = ["--token-key-file", key] if policy == "hash" else []
    path = tmp_path / "run.db"
    report = shell.document(*RUN, "--tokens", policy, *more, "--db", path)
    assert report["audit"]["verdict"] == "pass"
    with Journal.open(path) as journal:
        assert journal.reader().info.token_policy == policy
    (created,) = shell.document("events", path, "--kind", "node_created", "--limit", "1", "--reveal-tokens")[
        "events"
    ]
    tokens = created["event"]["tokens"]
    assert (tokens["count"], tokens["values"], tokens["hash"] is None) == (None, None, policy == "none")


def test_tokens_are_shown_only_when_asked_for(shell: Shell, database: Path) -> None:
    find = ("events", database, "--kind", "node_created", "--limit", "1")
    hidden = shell.document(*find)["events"][0]["event"]
    shown = shell.document(*find, "--reveal-tokens")["events"][0]["event"]
    assert hidden["tokens"]["values"] is None
    assert len(shown["tokens"]["values"]) == hidden["tokens"]["count"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--tokens", "hash"], "needs a key"),
        (["--tokens", "hash", "--token-key-file", "/nowhere/key"], "token key cannot be read"),
        (["--tokens", "none", "--token-key-file", __file__], "belongs to"),
        (["--tokens", "hash", "--token-key-file", __file__], "16 to 64 bytes"),
    ],
)
def test_a_key_that_is_missing_or_out_of_place_is_refused(
    shell: Shell, tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    status, out, err = shell(*RUN, *arguments, "--db", tmp_path / "run.db")
    assert (status, out) == (2, "")
    assert sentence in err


def test_the_chain_is_verified_and_without_an_anchor_the_tail_is_unknown(
    shell: Shell, database: Path
) -> None:
    status, out, _ = shell("audit", database, "--chain")
    assert status == 0
    assert out.startswith("chain: pass\n")
    assert "it cannot be known whether the end was cut off" in out
    report = shell.document("audit", database, "--chain")
    anchor = json.loads(shell("anchor", database)[1])
    assert (report["last_seq"], report["head"], report["anchored"]) == (anchor["seq"], anchor["hash"], False)
    assert "it cannot be known" in shell("audit", database)[1]


def test_a_cut_tail_fails_against_the_anchor_and_passes_without(shell: Shell, own: Path) -> None:
    anchor = own.with_name("anchor.json")
    anchor.write_text(shell("anchor", own)[1])
    status, out, _ = shell("audit", own, "--anchor", anchor)
    assert status == 0
    assert "tail: the anchor stands in this journal" in out
    assert shell("audit", own, "--chain", "--anchor", anchor)[0] == 0
    cut_tail(own)
    assert shell("audit", own, "--chain")[0] == 0
    status, out, _ = shell("audit", own, "--chain", "--anchor", anchor)
    assert status == 1
    assert "the tail was cut" in out
    status, out, _ = shell("audit", own, "--anchor", anchor)
    assert status == 1
    assert "the tail was cut" in out
    assert "tail: the anchor does not confirm this journal" in out
    assert "without an anchor" not in out


def test_a_replaced_journal_fails_against_the_anchor(shell: Shell, own: Path, tmp_path: Path) -> None:
    anchor = tmp_path / "anchor.json"
    anchor.write_text(shell("anchor", own)[1])
    other = tmp_path / "other.db"
    assert shell(*RUN, "--db", other)[0] == 0
    status, out, _ = shell("audit", other, "--chain", "--anchor", anchor)
    assert status == 1
    assert "it was replaced" in out
    # A store that still has the journal of the anchor is looked at there, whatever came after.
    assert shell(*RUN, "--db", own)[0] == 0
    assert shell.document("audit", own, "--chain", "--anchor", anchor)["journal"] == 1


def test_a_forged_anchor_is_named(shell: Shell, database: Path, tmp_path: Path) -> None:
    key, anchor = tmp_path / "key.pem", tmp_path / "anchor.json"
    assert shell("anchor", "--new-key", key)[0] == 0
    assert key.stat().st_mode & 0o077 == 0
    signed = shell("anchor", database, "--sign", key)[1]
    check = ("audit", database, "--chain", "--anchor", anchor, "--public-key", f"{key}.pub")
    anchor.write_text(signed)
    assert shell.document(*check)["signature"] == "valid"
    for forged in (
        signed.replace('"number": ', '"number": 1'),
        json.dumps({name: cell for name, cell in json.loads(signed).items() if name != "signature"}),
    ):
        anchor.write_text(forged)
        status, out, _ = shell(*check)
        assert status == 1
        assert "it is forged" in out
        assert shell("audit", database, "--anchor", anchor, "--public-key", f"{key}.pub")[0] == 1


def test_a_signature_that_nobody_checked_is_told(shell: Shell, database: Path, tmp_path: Path) -> None:
    key, anchor = tmp_path / "key.pem", tmp_path / "anchor.json"
    assert shell("anchor", "--new-key", key)[0] == 0
    anchor.write_text(shell("anchor", database, "--sign", key)[1])
    check = ("audit", database, "--anchor", anchor)
    said = "its signature was not checked: --public-key"
    status, _, err = shell(*check)
    assert (status, said in err) == (0, True)
    assert "not checked" in shell(*check, "--chain")[1]
    assert shell(*check, "--public-key", f"{key}.pub")[2] == ""
    anchor.write_text(shell("anchor", database)[1])
    assert shell(*check)[2] == ""


def test_a_key_is_never_overwritten(shell: Shell, tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    assert shell("anchor", "--new-key", key)[0] == 0
    before = key.read_bytes()
    status, _, err = shell("anchor", "--new-key", key)
    assert status == 2
    assert "cannot be written" in err
    assert key.read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["anchor"], "name the database"),
        (["audit", "DB", "--public-key", __file__], "give --anchor too"),
        (["audit", "DB", "--anchor", __file__], "anchor"),
        (["audit", "DB", "--anchor", "/nowhere"], "anchor cannot be read"),
        (["anchor", "DB", "--sign", __file__], "no private key"),
        (["events", "DB", "--kind", "nothing"], "no event kind"),
        (["events", "DB", "--since", "yesterday"], "is no time"),
        (["history", "slot", "DB", "999999"], "not in the Full pool, whose slots are 16 to"),
        (["history", "node", "DB", "999999"], "tells of a node"),
        (["history", "request", "DB", "nobody"], "no event names"),
        (["diff", "DB", "--from", "20", "--to", "10"], "comes after"),
    ],
)
def test_wrong_input_gets_one_sentence_and_status_2(
    shell: Shell, database: Path, arguments: list[str], sentence: str
) -> None:
    status, out, err = shell(*[str(database) if word == "DB" else word for word in arguments])
    assert (status, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1


def test_events_are_paged_by_the_seq_that_an_answer_names(shell: Shell, database: Path) -> None:
    find = ("events", database, "--kind", "lock_acquired", "--kind", "lock_released")
    whole = [event["seq"] for event in shell.document(*find)["events"]]
    assert len(whole) > 8
    first = shell.document(*find, "--limit", "5")
    second = shell.document(*find, "--limit", "100", "--after", first["next"])
    assert [event["seq"] for event in first["events"] + second["events"]] == whole
    assert second["next"] is None
    status, out, err = shell(*find, "--limit", "5")
    assert (status, len(out.splitlines())) == (0, 5)
    assert err == f"there are more: --after {first['next']}\n"


def test_events_are_found_by_request_transaction_node_and_time(shell: Shell, database: Path) -> None:
    (opened,) = shell.document("events", database, "--kind", "request_opened", "--limit", "1")["events"]
    request = opened["event"]["request_id"]
    of_request = shell.document("events", database, "--request", request)["events"]
    assert opened in of_request
    of_transaction = shell.document("events", database, "--transaction", opened["transaction"])["events"]
    assert {event["op"] for event in of_transaction} == {"open_request"}
    assert opened in of_transaction
    assert (
        opened in shell.document("events", database, "--since", opened["time"], "--limit", "1000")["events"]
    )
    assert opened not in shell.document("events", database, "--until", opened["time"])["events"]
    assert shell.document("history", "request", database, request)["events"] == of_request
    status, out, err = shell("history", "request", database, request, "--limit", "1")
    assert (status, len(out.splitlines()), err) == (0, 1, f"there are more: --after {of_request[0]['seq']}\n")
    assert shell("history", "request", database, request, "--limit", len(of_request))[2] == ""
    (deepest,) = shell.document("events", database, "--kind", "lock_released", "--limit", "1")["events"]
    created, *story = shell.document("history", "node", database, deepest["event"]["node"] or 1)["events"]
    assert created["event"]["kind"] in ("node_created", "node_split")
    assert all(event["seq"] > created["seq"] for event in story)


def test_the_history_of_a_slot_says_who_held_it_and_why_it_ended(shell: Shell, database: Path) -> None:
    tenures = shell.document("history", "slot", database, "900")["tenures"]
    assert {tenure["holder"] for tenure in tenures} == {"request", "node"}
    assert all(one["until"] is not None for one in tenures[:-1])
    out = shell("history", "slot", database, "900")[1]
    assert len(out.splitlines()) == len(tenures)
    assert "began with pages_allocated; ended by" in out
    assert shell.document("history", "slot", database, "900", "--swa")["pool"] == "swa"


def test_a_difference_names_what_is_not_as_it_was(shell: Shell, database: Path) -> None:
    (opened,) = shell.document("events", database, "--kind", "request_opened", "--limit", "1")["events"]
    found = shell.document("diff", database, "--from", "1", "--to", opened["seq"] + 3)
    assert found["difference"]["requests"]["added"] == [opened["event"]["request_id"]]
    out = shell("diff", database, "--from", "1", "--to", opened["seq"] + 3)[1]
    assert f"+ request {opened['event']['request_id']}" in out
    assert "nothing differs" in shell("diff", database, "--from", "9", "--to", "9")[1]


def test_tail_prints_the_last_events_one_a_line(shell: Shell, database: Path) -> None:
    status, out, _ = shell("tail", database, "-n", "4", "--json")
    assert status == 0
    seqs = [json.loads(line)["seq"] for line in out.splitlines()]
    with Journal.open(database) as journal:
        last = journal.reader().head().seq
    assert seqs == [last - 3, last - 2, last - 1, last]
    assert len(shell("tail", database, "-n", "4")[1].splitlines()) == 4


def test_anomalies_of_a_healthy_run_are_none(shell: Shell, database: Path) -> None:
    assert shell.document("anomalies", database) == {
        "journal": 1,
        "anomalies": [],
        "next": None,
        "unseen": None,
    }


def test_exported_files_are_held_to_the_anchor_too(shell: Shell, own: Path, tmp_path: Path) -> None:
    anchor, folder = tmp_path / "anchor.json", tmp_path / "out"
    anchor.write_text(shell("anchor", own)[1])
    assert shell("export", own, "--format", "jsonl", "--out", folder)[0] == 0
    status, out, _ = shell("audit", folder, "--anchor", anchor)
    assert status == 0
    assert "tail: the anchor stands in this journal" in out
    assert shell("audit", own, "--exported", folder, "--anchor", anchor)[0] == 0
    cut_tail(own)
    early = tmp_path / "early"
    assert shell("export", own, "--format", "jsonl", "--out", early)[0] == 0
    status, out, _ = shell("audit", early, "--anchor", anchor)
    assert status == 1
    assert "the tail was cut" in out
    document = json.loads(anchor.read_text())
    for changes, sentence in (
        ({"epoch": "0" * 32}, "it was replaced"),
        ({"hash": "00" * 40}, "has another hash"),
    ):
        anchor.write_text(json.dumps({**document, **changes}))
        status, out, _ = shell("audit", folder, "--anchor", anchor)
        assert status == 1
        assert sentence in out
