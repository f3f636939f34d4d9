"""Makes the sound inputs of the corpora from recordings: `python -m tests.fuzz.make_corpus`.

What was found by fuzzing stands beside them and was made by nobody; it is left as it is.
"""

import tempfile
from pathlib import Path

import numpy as np

from kvledger.core.events import EVENTS, EventsDropped, MappingSet
from kvledger.journal import Journal
from kvledger.journal.codec import encode
from kvledger.journal.export import ExportedJournal, export_journal
from tests.fuzz import event_decoder, parquet_reader
from tests.fuzz.corpora import CORPUS
from tests.support.payload_examples import TELLING, recorded_events
from tests.support.recorded_run import record_run, small_run

TRANSACTIONS = 4
"""Of the recorded run that stands in the Parquet files: enough for each part of one, and a small file."""

TRACE = """\
{"timestamp": 0, "input_length": 3586, "output_length": 500, "hash_ids": [0, 1, 2, 3, 4, 5, 6, 7]}
{"timestamp": 0, "input_length": 1100, "output_length": 12, "hash_ids": [0, 1, 14]}
{"timestamp": 3000, "input_length": 512, "output_length": 0, "hash_ids": [15]}
"""


def main() -> None:
    """Write them."""
    for kind, data in _events().items():
        _put("event_decoder", kind, data)
    _put("trace_reader", "three-requests", TRACE.encode())
    _put("trace_reader", "out-of-order", "\n\n".join(reversed(TRACE.splitlines())).encode())
    with tempfile.TemporaryDirectory() as folder:
        _put_pieces(Path(folder))


def _events() -> dict[str, bytes]:
    """The event of each kind that shows most, as three recordings have it."""
    found: dict[str, bytes] = {}
    for event in recorded_events():
        if TELLING.get(event.kind, lambda event: True)(event):
            found.setdefault(event.kind, event_decoder.data_of(encode(event)))
    # These two are recorded where an engine owns its memory, and where a store is away for long.
    for made in (MappingSet(np.array([3, 4]), np.array([7, 0])), EventsDropped(1_201, 1_340)):
        found[made.kind] = event_decoder.data_of(encode(made))
    assert found.keys() == EVENTS.keys()
    return found


def _put_pieces(folder: Path) -> None:
    with Journal.open(folder / "run.db") as store:
        reader = record_run(store, small_run()[:TRANSACTIONS], name="run", checkpoint_every=10)
        export_journal(reader, folder / "out", form="parquet")
    (piece,) = ExportedJournal.open(folder / "out").pieces
    _put("parquet_reader", "file", piece.path.read_bytes())
    _put("parquet_reader", "parts", parquet_reader.parts_of(piece))


def _put(target: str, name: str, data: bytes) -> None:
    folder = CORPUS / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


if __name__ == "__main__":
    main()
