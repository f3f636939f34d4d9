"""What is not known is never a pass, what was tampered with is never a failure to run, and both say why."""

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvledger.journal import Journal
from kvledger.journal.anchor import write_anchor
from kvledger.journal.audit.verdict import TAIL_EARLIER, TAIL_KNOWN, TAIL_REFUTED, TAIL_UNKNOWN
from kvledger.journal.chain import Anchor
from kvledger.journal.export.facts import CheckpointFacts
from kvledger.journal.export.sums import sum_path
from kvledger.tools.cli import main
from tests.support.recorded_run import record_run, small_run
from tests.support.tampering import tamper

HUGE = 2**63 - 1
NO_TEXT = "CAST(x'ff' AS TEXT)"

Said = Callable[..., tuple[int, Any]]


class Kept:
    """A journal that was exported and pruned: `whole.db` before that, `run.db` after it, and its files in
    `out`.

    `early` and `late` are anchors from before and after the place where the pruned database begins, at seq
    `start_seq` and transaction `start_number`.
    """

    def __init__(self, folder: Path) -> None:
        self.database, self.out = folder / "run.db", folder / "out"
        self.early, self.late = folder / "early.json", folder / "late.json"

    @classmethod
    def made_in(cls, folder: Path) -> "Kept":
        kept = cls(folder)
        with Journal.open(kept.database) as journal:
            reader = record_run(journal, small_run(24), checkpoint_every=120, kept_up=True)
            kept.late.write_text(write_anchor(reader.anchor()))
            first = reader.transaction(3)
            epoch = reader.info.epoch
            kept.early.write_text(write_anchor(Anchor(epoch, 3, first.last_seq, first.hash)))
            cut = reader.checkpoint_seqs()[1]
        assert main(["export", str(kept.database), "--out", str(kept.out)]) == 0
        shutil.copy(kept.database, folder / "whole.db")
        prune = ["prune", str(kept.database), "--before", str(cut + 1), "--exported", str(kept.out)]
        assert main(prune) == 0
        return kept

    @property
    def start_seq(self) -> int:
        with Journal.open(self.database) as journal:
            return int(next(journal.reader().transactions()).first_seq) - 1

    @property
    def start_number(self) -> int:
        with Journal.open(self.database) as journal:
            return int(next(journal.reader().transactions()).number) - 1


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Kept.made_in(tmp_path_factory.mktemp("kept")).database.parent


@pytest.fixture
def kept(made: Path, tmp_path: Path) -> Kept:
    """A copy that a test may change."""
    shutil.copytree(made, tmp_path / "kept")
    return Kept(tmp_path / "kept")


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    """Runs `kvledger audit` and returns its status and its document."""

    def run(*arguments: object) -> tuple[int, Any]:
        capsys.readouterr()
        status = main(["audit", *map(str, arguments), "--json"])
        out = capsys.readouterr().out
        return status, json.loads(out) if out else None

    return run


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def run(*arguments: object) -> str:
        capsys.readouterr()
        main(["audit", *map(str, arguments)])
        return capsys.readouterr().out

    return run


def test_the_chain_of_a_pruned_journal_alone_is_unverified(kept: Kept, said: Said) -> None:
    status, report = said(kept.database, "--chain")
    assert (status, report["verdict"], report["breaks"], report["proved"]) == (1, "unverified", [], False)
    assert (report["start_seq"], report["first_transaction"]) == (kept.start_seq, kept.start_number + 1)
    (note,) = report["notes"]
    assert note.startswith(
        f"events 1 to {kept.start_seq} are not here, and whether they were pruned or cut off"
    )
    assert "--exported" in note
    # Which transaction names the checkpoint depends on when the writer put it beside the others.
    with closing(sqlite3.connect(kept.database)) as connection:
        (naming,) = connection.execute(
            "SELECT number FROM transactions WHERE checkpoint_seq = ?", (kept.start_seq,)
        ).fetchone()
    assert f"or an anchor of transaction {naming} or a later one" in note


def test_a_beginning_that_was_cut_off_by_hand_looks_the_same_and_is_unverified_too(
    kept: Kept, said: Said
) -> None:
    whole = kept.database.with_name("whole.db")
    seq, number = kept.start_seq, kept.start_number
    tamper(
        str(whole),
        f"DELETE FROM events WHERE seq <= {seq}",
        f"DELETE FROM transactions WHERE number <= {number}",
        f"DELETE FROM checkpoints WHERE seq < {seq}",
    )
    assert said(whole, "--chain") == said(kept.database, "--chain")


def test_an_anchor_that_covers_the_beginning_proves_what_is_here(kept: Kept, said: Said) -> None:
    status, report = said(kept.database, "--chain", "--anchor", kept.late)
    assert (status, report["verdict"], report["proved"], report["tail"]) == (0, "pass", True, TAIL_KNOWN)
    assert report["notes"] == [
        f"proved from seq {kept.start_seq + 1} on: the anchor covers the checkpoint at seq {kept.start_seq}, "
        "at which this begins"
    ]


def test_an_anchor_that_is_older_than_what_is_left_is_no_violation_and_no_pass(
    kept: Kept, said: Said, printed: Callable[..., str]
) -> None:
    for how in ([], ["--chain"]):
        status, document = said(kept.database, *how, "--anchor", kept.early)
        assert (status, document["verdict"], document["tail"]) == (1, "unverified", TAIL_EARLIER)
        assert any(
            "transaction 3, seq" in note and "give the exported files" in note for note in document["notes"]
        )
        page = printed(kept.database, *how, "--anchor", kept.early)
        assert TAIL_EARLIER in page
        assert TAIL_UNKNOWN not in page
        status, document = said(kept.database, *how, "--anchor", kept.early, "--exported", kept.out)
        assert (status, document["verdict"], document["tail"]) == (0, "pass", TAIL_KNOWN)
        assert list(document["notes"]) == []


@pytest.mark.parametrize("anchor", ["early", "late"])
def test_the_chain_is_verified_across_files_and_database(kept: Kept, said: Said, anchor: str) -> None:
    with Journal.open(kept.database.with_name("whole.db")) as journal:
        head, checkpoints = journal.reader().head(), len(journal.reader().checkpoint_seqs())
    how = ("--chain", "--anchor", getattr(kept, anchor))
    for where in (
        (kept.database, "--exported", kept.out),
        (kept.out,),
        (kept.database.with_name("whole.db"),),
    ):
        status, report = said(*where, *how)
        assert (status, report["verdict"], report["anchored"], report["proved"]) == (0, "pass", True, True)
        assert (report["transactions"], report["events"]) == (head.number, head.seq)
        assert (report["head"], report["last_seq"]) == (head.hash.hex(), head.seq)
        assert (report["first_transaction"], report["checkpoints"]) == (1, checkpoints)
        assert report["notes"] == []


def test_files_from_the_middle_of_a_journal_are_unverified_until_an_anchor_covers_their_beginning(
    kept: Kept, said: Said, tmp_path: Path
) -> None:
    later = tmp_path / "later"
    assert main(["export", str(kept.database), "--out", str(later), "--format", "jsonl"]) == 0
    status, report = said(later, "--chain")
    assert (status, report["verdict"], report["start_seq"]) == (1, "unverified", kept.start_seq)
    assert said(later, "--chain", "--anchor", kept.late)[1]["verdict"] == "pass"
    status, report = said(later, "--chain", "--anchor", kept.early)
    assert (report["verdict"], report["tail"]) == ("unverified", TAIL_EARLIER)


def test_files_that_end_before_the_anchor_were_cut(kept: Kept, said: Said, tmp_path: Path) -> None:
    whole, early = kept.database.with_name("whole.db"), tmp_path / "early"
    assert main(["export", str(whole), "--out", str(early), "--upto", "200"]) == 0
    for how in ([], ["--chain"]):
        status, document = said(early, *how, "--anchor", kept.late)
        assert (status, document["verdict"], document["tail"]) == (1, "fail", TAIL_REFUTED)
        assert "the tail was cut" in json.dumps(document)
        # What follows them in the database is there.
        assert said(whole, *how, "--exported", early, "--anchor", kept.late)[0] == 0


NEXT = "(SELECT min(number) FROM transactions)"
FIRST_SEQ = "(SELECT min(seq) FROM events)"
TAMPERED = [
    *[f"UPDATE transactions SET {cell} WHERE number = {NEXT}" for cell in (
        "previous_hash = zeroblob(40)", "hash = zeroblob(40)", "time_us = time_us + 1", "duration_us = 7",
        f"op = {NO_TEXT}", f"request_id = {NO_TEXT}", "first_seq = first_seq + 1",
        f"event_count = {HUGE}", "number = -1", f"number = {HUGE}", "number = number + 1000000",
    )],
    *[f"UPDATE events SET {cell} WHERE seq = {FIRST_SEQ}" for cell in (
        "payload = '{'", f"payload = {NO_TEXT}", "kind = 'nonsense'", "version = 99", "undone = 1 - undone",
    )],
    f"DELETE FROM transactions WHERE number = {NEXT}",
    f"DELETE FROM events WHERE seq = {FIRST_SEQ}",
    "DELETE FROM events",
    "DELETE FROM journals",
    f"UPDATE transactions SET hash = zeroblob(40) WHERE number = {NEXT} + 2",
    "UPDATE journals SET epoch = 'x' || substr(epoch, 2)",
    "UPDATE journals SET config = '{'",
    "UPDATE journals SET format_version = 1",
    "UPDATE journals SET format_version = 77",
    f"UPDATE journals SET name = {NO_TEXT}",
    "UPDATE checkpoints SET state = zeroblob(9)",
    f"UPDATE checkpoints SET digest = {NO_TEXT}",
    "UPDATE checkpoints SET chain_hash = zeroblob(40) WHERE seq = (SELECT min(seq) FROM checkpoints)",
    "DELETE FROM checkpoints WHERE seq = (SELECT min(seq) FROM checkpoints)",
]  # fmt: skip


@pytest.mark.parametrize("statement", TAMPERED)
@pytest.mark.parametrize("base", ["run.db", "whole.db"])
def test_a_database_that_was_tampered_with_is_a_violation_beside_its_files_too(
    kept: Kept, said: Said, statement: str, base: str
) -> None:
    database = kept.database.with_name(base)
    with closing(sqlite3.connect(database, isolation_level=None)) as file:
        file.execute("PRAGMA ignore_check_constraints = ON")
        file.execute(statement)
    status, verdict = said(database, "--exported", kept.out)
    assert (status, verdict["verdict"]) == (1, "fail")
    assert verdict["findings"]
    status, report = said(database, "--exported", kept.out, "--chain")
    assert (status, report["verdict"]) == (1, "fail")
    first = report["breaks"][0]
    assert first["number"] is not None or first["seq"] is not None or first["table"] == "journals"


def test_a_database_that_does_not_go_on_from_its_files_is_a_violation_although_it_is_sound_alone(
    kept: Kept, said: Said, tmp_path: Path
) -> None:
    # The files end before the pruned database begins: what lies between was taken from both.
    early = tmp_path / "early"
    assert (
        main(["export", str(kept.database.with_name("whole.db")), "--out", str(early), "--upto", "60"]) == 0
    )
    for how in ([], ["--chain"]):
        status, document = said(kept.database, *how, "--exported", early)
        assert (status, document["verdict"]) == (1, "fail")
        assert "the database goes on from" in json.dumps(document)


def test_sound_files_of_another_journal_could_not_be_audited_with_it(
    kept: Kept, said: Said, tmp_path: Path
) -> None:
    other = Kept.made_in(tmp_path)
    for how in ([], ["--chain"]):
        assert said(kept.database, *how, "--exported", other.out) == (2, None)


def test_a_checkpoint_that_was_replaced_in_a_file_is_found(kept: Kept, said: Said, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    whole = kept.database.with_name("whole.db")
    assert main(["export", str(whole), "--out", str(lines), "--format", "jsonl"]) == 0
    (file,) = lines.glob("*.jsonl")
    with Journal.open(whole) as journal:
        reader = journal.reader()
        true = reader.checkpoint_before(reader.checkpoint_seqs()[1])
        info = reader.info
    assert true is not None
    lie = replace(true, digest="0" * 64)
    lie = replace(lie, hash=info.hash_of(lie) or b"")
    text = file.read_text().splitlines()
    place = next(i for i, line in enumerate(text) if json.loads(line).get("number") == true.number)
    line = json.loads(text[place])
    line["checkpoint"] = CheckpointFacts.of(lie).model_dump(mode="json")
    text[place] = json.dumps(line)
    text[-1] = text[-1].replace(true.digest, lie.digest)
    file.write_text("\n".join(text) + "\n")
    sum_path(file).unlink()
    status, report = said(lines, "--chain")
    assert (status, report["verdict"]) == (1, "fail")
    first = report["breaks"][0]
    assert (first["table"], first["seq"]) == ("checkpoints", true.seq)
    assert "another one than transaction" in first["sentence"]


def test_a_sum_that_is_missing_stands_in_the_verdict_and_in_the_report(
    kept: Kept, said: Said, printed: Callable[..., str]
) -> None:
    (piece,) = kept.out.glob("*.parquet")
    sum_path(piece).unlink()
    for how in ([], ["--chain"]):
        for where in ((kept.out,), (kept.database, "--exported", kept.out)):
            status, document = said(*where, *how)
            assert (status, document["verdict"]) == (0, "pass")
            (note,) = document["notes"]
            assert note.startswith(f"no SHA-256 stands beside {piece.name}")
            assert note in printed(*where, *how)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"hash": "00" * 40}, "has another hash"),
        ({"epoch": "0" * 32}, "it was replaced"),
        ({"number": 10**6, "seq": 10**7}, "the tail was cut"),
        ({"checkpoint_hash": "00" * 32}, "is another one than the anchor names"),
    ],
)
def test_an_anchor_that_was_given_and_fails_is_not_called_missing(
    kept: Kept, printed: Callable[..., str], said: Said, change: dict[str, Any], sentence: str
) -> None:
    whole = kept.database.with_name("whole.db")
    kept.late.write_text(json.dumps({**json.loads(kept.late.read_text()), **change}))
    for where in ((whole,), (kept.out,), (kept.database, "--exported", kept.out)):
        for how in ([], ["--chain"]):
            status, document = said(*where, *how, "--anchor", kept.late, "--journal", 1)
            assert (status, document["verdict"], document["tail"]) == (1, "fail", TAIL_REFUTED)
            page = printed(*where, *how, "--anchor", kept.late, "--journal", 1)
            assert sentence in page
            assert "without an anchor" not in page


@pytest.mark.parametrize(
    "cell",
    ["name = 'mine'", "token_policy = 'none'", "created_us = created_us + 1", "config = config || ' '",
     "config = NULL", "format_version = 1", "format_version = 77", f"name = {NO_TEXT}", "config = '{'"],
)  # fmt: skip
def test_the_row_of_a_pruned_journal_is_covered_by_its_checkpoints(kept: Kept, said: Said, cell: str) -> None:
    tamper(str(kept.database), f"UPDATE journals SET {cell}")
    for how in ([], ["--chain"]):
        status, document = said(kept.database, *how)
        assert (status, document["verdict"]) == (1, "fail")
