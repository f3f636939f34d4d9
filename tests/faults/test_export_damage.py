"""Exported files that were cut, changed, mixed up or lost: refused, or found, and never any other error."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kvledger.core.errors import JournalError, JournalFormatError
from kvledger.journal import Journal
from kvledger.journal.audit import audit
from kvledger.journal.export import ExportedJournal, export_journal
from kvledger.journal.export.sums import sum_path, write_sum
from tests.support.recorded_run import record_run, small_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three Parquet pieces of one journal, one of another, and the first as JSON lines, in folders."""
    root = tmp_path_factory.mktemp("exports")
    with Journal.open(root / "run.db") as journal:
        reader = record_run(journal, small_run(20), checkpoint_every=100)
        for upto in (100, 250, None):
            export_journal(reader, root / "pieces", upto_seq=upto)
        export_journal(reader, root / "lines", form="jsonl")
        other = record_run(journal, small_run(20), checkpoint_every=100)
        export_journal(other, root / "other")
    return root


@pytest.fixture
def pieces(folder: Path, tmp_path: Path) -> list[Path]:
    shutil.copytree(folder / "pieces", tmp_path / "pieces")
    return sorted((tmp_path / "pieces").glob("*.parquet"))


@pytest.fixture
def lines(folder: Path, tmp_path: Path) -> Path:
    (source,) = (folder / "lines").glob("*.jsonl")
    shutil.copy(source, tmp_path / source.name)
    return tmp_path / source.name


def is_found(path: Path) -> bool:
    """Whether reading the files at `path` is refused, or their verification finds something."""
    try:
        files = ExportedJournal.open(path)
        verdict = audit(files, chain=files.verify())
    except JournalError:
        return True
    return verdict.verdict == "fail"


def test_the_pieces_are_sound_before_anything_is_done_to_them(pieces: list[Path], lines: Path) -> None:
    assert not is_found(pieces[0].parent)
    assert not is_found(lines)


def test_a_missing_piece_in_the_middle_is_named(pieces: list[Path]) -> None:
    pieces[1].unlink()
    with pytest.raises(JournalFormatError, match="are missing between"):
        ExportedJournal.open(pieces[0].parent)


def test_a_missing_first_piece_leaves_what_begins_at_a_checkpoint_or_is_refused(pieces: list[Path]) -> None:
    pieces[0].unlink()
    files = ExportedJournal.open(pieces[0].parent)
    verdict = audit(files, chain=files.verify())
    # The second piece goes on at a seq where no state stands; what lies before the next one is unverified.
    assert (verdict.verdict, verdict.gaps[0].dropped) == ("unverified", 0)
    assert verdict.checkpoint_seq is not None


def test_a_piece_that_is_there_twice_is_named(pieces: list[Path]) -> None:
    shutil.copy(pieces[1], pieces[1].with_name("again.parquet"))
    with pytest.raises(JournalFormatError, match="overlap"):
        ExportedJournal.open(pieces[0].parent)


def test_the_same_events_as_parquet_and_as_json_lines_overlap(pieces: list[Path], lines: Path) -> None:
    shutil.copy(lines, pieces[0].parent)
    with pytest.raises(JournalFormatError, match="overlap"):
        ExportedJournal.open(pieces[0].parent)


def test_a_piece_of_another_journal_does_not_fill_the_hole(pieces: list[Path], folder: Path) -> None:
    pieces[1].unlink()
    (other,) = (folder / "other").glob("*.parquet")
    shutil.copy(other, pieces[1].parent / other.name)
    with Journal.open(folder / "run.db") as journal, pytest.raises(JournalFormatError, match="missing"):
        ExportedJournal.open(pieces[0].parent, rest=journal.reader(1))


def test_a_folder_of_one_journal_is_not_the_beginning_of_another(pieces: list[Path], folder: Path) -> None:
    with Journal.open(folder / "run.db") as journal, pytest.raises(JournalError, match="no piece"):
        ExportedJournal.open(pieces[0].parent, rest=journal.reader(2))


def test_a_piece_whose_facts_name_another_journal_is_found(lines: Path) -> None:
    text = lines.read_text().splitlines()
    facts = json.loads(text[0])
    for change in ({"epoch": "0" * 32}, {"created_us": 1}, {"name": "mine"}, {"config": "{}"}):
        text[0] = json.dumps({**facts, "journal": {**facts["journal"], **change}})
        lines.write_text("\n".join(text) + "\n")
        assert is_found(lines), change


@pytest.mark.parametrize("part", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_parquet_file_that_was_cut_is_refused(pieces: list[Path], part: float) -> None:
    data = pieces[2].read_bytes()
    pieces[2].write_bytes(data[: int(len(data) * part)])
    with pytest.raises(JournalFormatError, match="cannot be read as Parquet"):
        ExportedJournal.open(pieces[0].parent)


def test_a_changed_bit_anywhere_in_a_file_with_its_sum_is_found(pieces: list[Path], lines: Path) -> None:
    write_sum(lines, lines)
    for path in (pieces[0], lines):
        data = path.read_bytes()
        for place in range(0, len(data), max(1, len(data) // 50)):
            changed = bytearray(data)
            changed[place] ^= 0x20
            path.write_bytes(changed)
            assert is_found(path), (path, place)
        path.write_bytes(data)
        assert not is_found(path)


def test_a_sum_that_cannot_be_read_or_is_none_is_found(lines: Path) -> None:
    for bad in ("", "no sum", "\xff", "0" * 10_000):
        sum_path(lines).write_text(bad)
        assert is_found(lines), bad
    sum_path(lines).unlink()
    sum_path(lines).mkdir()
    assert is_found(lines)


def test_a_file_without_its_sum_is_said_to_be_unverified_outside_its_cells(
    lines: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert list(ExportedJournal.open(lines).verify()) == []
    assert "no SHA-256 stands beside" in caplog.text


def test_a_changed_byte_in_a_parquet_file_without_a_sum_is_found_or_changes_nothing(
    pieces: list[Path],
) -> None:
    sum_path(pieces[0]).unlink()
    data = pieces[0].read_bytes()
    whole = [one.hash for one in ExportedJournal.open(pieces[0]).transactions()]
    missed = 0
    for place in range(0, len(data), max(1, len(data) // 150)):
        changed = bytearray(data)
        changed[place] ^= 0x20
        pieces[0].write_bytes(changed)
        if not is_found(pieces[0]):
            # Statistics, padding and names of the writing library: the cells are still those hashed.
            assert [one.hash for one in ExportedJournal.open(pieces[0]).transactions()] == whole
            missed += 1
    assert missed < 50


def test_json_lines_cut_anywhere_are_refused(lines: Path) -> None:
    data = lines.read_bytes()
    ends = [place for place, byte in enumerate(data) if byte == 0x0A]
    for size in (0, 1, ends[0], ends[0] + 1, ends[3] + 1, ends[3] + 40, ends[-2] + 1, len(data) - 1):
        lines.write_bytes(data[:size])
        assert is_found(lines), size


@pytest.mark.parametrize(
    "damage",
    [
        lambda line: "not JSON",
        lambda line: line[: len(line) // 2],
        lambda line: "[1, 2]",
        lambda line: "{}",
        lambda line: json.dumps({**json.loads(line), "more": 1}),
        lambda line: json.dumps({**json.loads(line), "number": "4"}),
        lambda line: json.dumps({**json.loads(line), "hash": "***"}),
        lambda line: json.dumps({**json.loads(line), "events": [[1]]}),
        lambda line: json.dumps({**json.loads(line), "events": None}),
        lambda line: json.dumps({**json.loads(line), "op": "\ud800"}),
        lambda line: json.dumps({**json.loads(line), "checkpoint": {"seq": 1}}),
        lambda line: "[" * 100_000,
        lambda line: "\x00\xff",
    ],
)
def test_a_line_that_is_no_transaction_is_found(lines: Path, damage: Callable[[str], str]) -> None:
    text = lines.read_text().splitlines()
    text[4] = damage(text[4])
    lines.write_text("\n".join(text) + "\n", errors="surrogatepass")
    assert is_found(lines)


@pytest.mark.parametrize(("row", "name"), [(0, "first_seq"), (0, "epoch"), (4, "op"), (-1, "events")])
def test_a_name_that_is_given_twice_is_refused(lines: Path, row: int, name: str) -> None:
    text = lines.read_text().splitlines()
    assert f'"{name}":' in text[row]
    text[row] = text[row].replace(f'"{name}":', f'"{name}":"another","{name}":', 1)
    lines.write_text("\n".join(text) + "\n")
    with pytest.raises(JournalFormatError, match="gives a name twice"):
        list(ExportedJournal.open(lines).verify())


def test_lines_that_are_gone_swapped_or_there_twice_are_found(lines: Path) -> None:
    text = lines.read_text().splitlines()
    for changed in (
        text[:4] + text[5:],
        [*text[:4], text[5], text[4], *text[6:]],
        text[:5] + text[4:],
        text[:-2] + text[-1:],
    ):
        lines.write_text("\n".join(changed) + "\n")
        assert is_found(lines)


def test_a_changed_cell_is_named_by_its_transaction(lines: Path) -> None:
    text = lines.read_text().splitlines()
    row = json.loads(text[4])
    text[4] = json.dumps({**row, "time_us": row["time_us"] + 1})
    lines.write_text("\n".join(text) + "\n")
    (found,) = ExportedJournal.open(lines).verify()
    assert (found.number, found.invariant) == (row["number"], "chain")


def test_another_export_version_and_other_parquet_files_are_refused(lines: Path, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    text = lines.read_text()
    for version, sentence in ((3, "export version 3; this version reads 1 and 2"), (1, "format version 2")):
        lines.write_text(text.replace('"kvledger_export":2', f'"kvledger_export":{version}', 1))
        with pytest.raises(JournalFormatError, match=sentence):
            ExportedJournal.open(lines)
    parquet.write_table(pa.table({"number": [1]}), tmp_path / "mine.parquet")
    with pytest.raises(JournalFormatError, match="is no exported journal"):
        ExportedJournal.open(tmp_path / "mine.parquet")


def test_a_parquet_file_with_other_columns_than_its_version_has_is_refused(pieces: list[Path]) -> None:
    import pyarrow.parquet as parquet

    kept = parquet.ParquetFile(pieces[0]).metadata.metadata
    table = parquet.read_table(pieces[0]).drop_columns(["duration_us"])
    parquet.write_table(table.replace_schema_metadata(kept), pieces[0])
    with pytest.raises(JournalFormatError, match="other columns"):
        ExportedJournal.open(pieces[0].parent)
