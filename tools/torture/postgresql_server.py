"""A private PostgreSQL server: a cluster of its own in a temporary folder, on a free port of loopback.

It uses the binaries that Debian's `postgresql` installs and touches no cluster that is there already.
PostgreSQL refuses to run as root, so for root it runs as another user of the system. It does not outlive the
process that started it, however that one ends: a shell that waits for its end stops the server then.
"""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kvledger.core.errors import JournalError

INSTALLATIONS = "/usr/lib/postgresql"
"""Where Debian keeps each version's binaries: VERSION/bin."""

UNPRIVILEGED = ("postgres", "nobody")
"""Users to run as in place of root, the first that exists."""

START_SECONDS = 60
"""A server that is not up by then will not come up."""

ROLE = "kvledger"

UNDERTAKER = """
read -r _
pid=$(head -n 1 "$1/data/postmaster.pid" 2>/dev/null)
if [ -n "$pid" ]; then
    kill -QUIT "$pid"
    while kill -0 "$pid" 2>/dev/null; do sleep 0.1; done
fi
rm -rf "$1"
"""
"""Waits until nobody holds the other end of its input, ends the server, removes its folder."""

SETTINGS = "-c shared_buffers=32MB -c max_connections=60"
"""Small enough to stand beside anything else on a machine; connections for a few dozen recorders."""


class NoServer(JournalError):
    """PostgreSQL is not installed, or could not be started."""


class PostgresqlServer:
    """One cluster, made by `start_server`. `stop` may be followed by `start`; the data stay."""

    def __init__(self, folder: Path, *, bin_folder: Path, user: str | None, fsync: bool) -> None:
        self.folder = folder
        self.port = 0
        self._bin = bin_folder
        self._user = user
        self._fsync = fsync

    def url(self, database: str) -> str:
        """The SQLAlchemy URL of one of its databases."""
        return f"postgresql+psycopg://{ROLE}@127.0.0.1:{self.port}/{database}"

    def initialise(self) -> None:
        """Make the cluster. Raises NoServer with what initdb said."""
        options = ["--username", ROLE, "--auth", "trust", "--encoding", "UTF8", "--no-locale", "--no-sync"]
        self._run([str(self._bin / "initdb"), "--pgdata", str(self._data), *options])

    def start(self) -> None:
        """Start it on the port it had, or a free one, and wait until it answers. Raises NoServer."""
        self.port = self.port or _free_port()
        sync = "on" if self._fsync else "off"
        settings = f"-h 127.0.0.1 -p {self.port} -k '' -c fsync={sync} -c full_page_writes={sync} {SETTINGS}"
        log = str(self.folder / "log")
        waiting = ["--wait", "--timeout", str(START_SECONDS), "--silent"]
        self._pg_ctl("start", "--log", log, "--options", settings, *waiting)

    def stop(self, *, mode: str = "fast") -> None:
        """Stop it: "fast" ends connections and checkpoints, "immediate" is a crash."""
        self._pg_ctl("stop", "--mode", mode, "--wait", "--timeout", str(START_SECONDS), "--silent")

    @property
    def running(self) -> bool:
        """Whether its main process is alive."""
        return self._postmaster() is not None

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _pg_ctl(self, command: str, *arguments: str) -> None:
        self._run([str(self._bin / "pg_ctl"), command, "--pgdata", str(self._data), *arguments])

    def _postmaster(self) -> int | None:
        try:
            pid = int((self._data / "postmaster.pid").read_text().split("\n", 1)[0])
            os.kill(pid, 0)
        except (OSError, ValueError):
            return None
        return pid

    def _run(self, command: Sequence[str]) -> None:
        if self._user is not None:
            group = str(pwd.getpwnam(self._user).pw_gid)
            command = ["setpriv", "--reuid", self._user, "--regid", group, "--init-groups", *command]
        environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "HOME": str(self.folder)}
        # The server inherits what is open, and must not keep a pipe of ours open: its words go to a file.
        with tempfile.TemporaryFile("w+") as said:
            ended = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                cwd=self.folder,
                env=environment,
                check=False,
            )
            if ended.returncode:
                said.seek(0)
                raise NoServer(f"PostgreSQL could not be started: {' '.join(said.read().split())}")


@contextmanager
def start_server(*, fsync: bool = False) -> Iterator[PostgresqlServer]:
    """Make and start a private server; stop it and remove its data at the end.

    Without `fsync` it is quick, and a power cut could lose what it has committed; the death of a process
    cannot. Raises NoServer where PostgreSQL is not installed or does not start.
    """
    bin_folder = find_binaries()
    user = _other_user() if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="kvledger-postgresql-"))
    try:
        with _undertaker(folder):
            if user is not None:
                os.chown(folder, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)
            server = PostgresqlServer(folder, bin_folder=bin_folder, user=user, fsync=fsync)
            server.initialise()
            server.start()
            try:
                yield server
            finally:
                if server.running:
                    server.stop(mode="immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _undertaker(folder: Path) -> Iterator[None]:
    """Somebody who stops the server in `folder` when this process ends before the block does.

    In a session of its own, so that what ends a group of processes passes it by.
    """
    command = ["sh", "-c", UNDERTAKER, "sh", str(folder)]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, cwd="/", start_new_session=True
    ):
        yield


def find_binaries() -> Path:
    """The folder with initdb and pg_ctl: Debian's newest version, else that on PATH. Raises NoServer."""
    found = [path for path in Path(INSTALLATIONS).glob("*/bin") if (path / "initdb").exists()]
    if found:
        return max(found, key=lambda path: _number(path.parent.name))
    on_path = shutil.which("initdb")
    if on_path is None:
        raise NoServer(f"PostgreSQL is not installed: no initdb under {INSTALLATIONS} or on PATH")
    return Path(on_path).resolve().parent


def _number(version: str) -> float:
    try:
        return float(version)
    except ValueError:
        return 0.0


def _other_user() -> str:
    known = {entry.pw_name for entry in pwd.getpwall()}
    for name in UNPRIVILEGED:
        if name in known:
            return name
    raise NoServer(f"PostgreSQL does not run as root, and none of {', '.join(UNPRIVILEGED)} exists")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
