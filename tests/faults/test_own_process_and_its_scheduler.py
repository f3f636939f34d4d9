"""The process that an Inspector has for the past ends with its scheduler, however that ends.

All schedulers are forks of one interpreter that has imported what they need, and run at the same time: about
ten seconds for all of them, most of it for the processes beside them, each a fresh interpreter.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

DEADLINE_SECONDS = 240
"""How long a test waits for all schedulers before it fails; nothing is measured against it."""

SCHEDULERS = """
import os, signal, sys, threading, urllib.request
from kvledger.api import ApiSettings, Inspector, create_app
from kvledger.api.library import Library
from kvledger.core import HybridCache
from kvledger.journal import Journal
from tests.support.inspected import CONFIG, serve_some

names, folder = sys.argv[2:], sys.argv[1]
# Whatever is imported at its first use is imported once, for all of them.
serve_some(HybridCache(CONFIG))
with Journal.open(f"{folder}/none.db") as store:
    create_app(ApiSettings(), Library(store))
for place, name in enumerate(names):
    if not os.fork():
        os.dup2(3 + 2 * place, 1)
        os.dup2(4 + 2 * place, 2)
        os.closerange(3, 3 + 2 * len(names))
        break
else:
    os.closerange(3, 3 + 2 * len(names))
    for _ in names:
        os.wait()
    sys.exit()

recorder = Journal.open(f"{folder}/{place}.db").record()
serve_some(HybridCache(CONFIG, sink=recorder))
recorder.flush()
inspector = Inspector.attach(recorder)
timeline = inspector.library.opened(1).timeline
timeline.wait_beyond(int(recorder.durable_seq) - 1, 60)
urllib.request.urlopen(f"{inspector.url}/v1/journals/1/tree?at=90").read()
print(inspector.own_process.phase, flush=True)
exec(ENDS[name])
"""
"""Forks a scheduler for each name, which writes into the pipes of its place, and ends as the name says."""

ENDS = {
    "left": "os._exit(3)",
    "failed": "raise SystemExit(3)",
    "closed": "inspector.close(); recorder.close()",
    "killed while an audit runs": """
urllib.request.urlopen(f"{inspector.url}/v1/journals/1/audits", data=b"").read()
os.kill(os.getpid(), signal.SIGKILL)
""",
    "killed, with a child that was forked and lives on": """
if not os.fork():
    os.close(1), os.close(2)
    os.read(0, 1)
    os._exit(0)
os.kill(os.getpid(), signal.SIGKILL)
""",
    "over, after a child that was forked": """
if not os.fork():
    sys.exit(0)
os.wait()
urllib.request.urlopen(f"{inspector.url}/v1/journals/1/tree?at=80").read()
assert inspector.own_process.phase == "up"
recorder.close()
""",
}


class Said:
    """What a scheduler, and everybody who has its stdout or stderr, says until the last of them is gone."""

    def __init__(self, out: int, err: int) -> None:
        self._told: dict[int, bytes] = {}
        self._readers = [threading.Thread(target=self._read, args=(end,), daemon=True) for end in (out, err)]
        self._ends = out, err
        for reader in self._readers:
            reader.start()

    def _read(self, end: int) -> None:
        with os.fdopen(end, "rb") as pipe:
            self._told[end] = pipe.read()

    def to_its_end(self) -> tuple[bytes, bytes]:
        """Both, once nobody is left who could say more."""
        for reader in self._readers:
            reader.join(DEADLINE_SECONDS)
            assert not reader.is_alive(), "the process outlived its scheduler"
        out, err = (self._told[end] for end in self._ends)
        return out, err


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Said]]:
    """What the scheduler of each end says."""
    folder: Path = tmp_path_factory.mktemp("schedulers")
    pipes = [os.pipe() for _ in range(2 * len(ENDS))]
    # The places 3, 4, ... are where the schedulers look for their pipes.
    moved = "; ".join(f"os.dup2({mine}, {100 + place})" for place, (_, mine) in enumerate(pipes))
    code = f"""
import os
{moved}
for place in range({len(pipes)}): os.dup2(100 + place, 3 + place)
os.closerange(3 + {len(pipes)}, 1024)
ENDS = {ENDS!r}
{SCHEDULERS}"""
    schedulers = subprocess.Popen(
        [sys.executable, "-W", "error::ResourceWarning", "-c", code, str(folder), *ENDS],
        stdin=subprocess.PIPE,
        pass_fds=[mine for _, mine in pipes],
        # Without threads of its own an interpreter may be forked at any time.
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OPENBLAS_NUM_THREADS": "1"},
    )
    for _, mine in pipes:
        os.close(mine)
    ears = [ear for ear, _ in pipes]
    yield {name: Said(*ears[2 * place : 2 * place + 2]) for place, name in enumerate(ENDS)}
    # The child that lives on waits for this.
    with schedulers:
        assert schedulers.stdin is not None
        schedulers.stdin.close()
    assert schedulers.returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("end", ENDS)
def test_it_ends_with_the_scheduler_however_that_ends(said: dict[str, Said], end: str) -> None:
    # It has the scheduler's stderr: while it lives, that has no end.
    assert said[end].to_its_end() == (b"up\n", b"")
