"""The private PostgreSQL server does not outlive whoever started it, however that one ends."""

import os
import select
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

START = """
import sys
from kvledger.tools.torture.postgresql_server import start_server
with start_server() as server:
    print(server.folder, flush=True)
    sys.stdin.read()
"""


def wait_for_the_end_of(processes: Iterable[int]) -> None:
    handles = [os.pidfd_open(process) for process in processes]
    try:
        for handle in handles:
            select.select([handle], [], [])
    finally:
        for handle in handles:
            os.close(handle)


@pytest.mark.usefixtures("postgresql_server")
def test_a_private_server_ends_and_leaves_nothing_when_its_process_is_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", START], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as starter:
        assert starter.stdout is not None
        folder = Path(starter.stdout.readline().strip())
        server = int((folder / "data" / "postmaster.pid").read_text().split()[0])
        left_behind = Path(f"/proc/{starter.pid}/task/{starter.pid}/children").read_text().split()
        starter.kill()
        wait_for_the_end_of(map(int, left_behind))
    with pytest.raises(ProcessLookupError):
        os.kill(server, 0)
    assert not folder.exists()
