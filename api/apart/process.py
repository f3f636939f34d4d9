"""The process that answers about the past, as its service sees it: begun, asked, ended, begun anew.

A state at a past seq takes a quarter of a second of Python, and inside a scheduler's process all threads
share one interpreter. So an Inspector has a process of its own for such questions: a fresh interpreter, never
a fork of the scheduler, at low priority. It starts when somebody first looks at the journal, and lives as
long as the service. Between both is a pair of sockets without a name, the process's end being its standard
input: nobody else can connect, nothing lies on a disk, and the process sees at once that the other side is
gone, however that ended. Where it cannot start or has died it is begun anew, so often as `Attempts` allows;
what it does not answer the service answers itself, as it does without it.
"""

import asyncio
import atexit
import logging
import os
import socket
import subprocess
import weakref
from typing import Any, Literal

from starlette.concurrency import run_in_threadpool

from kvledger.api.apart.attempts import Attempts
from kvledger.api.apart.link import Answered, Link, ProcessGone
from kvledger.api.apart.orders import Orders
from kvledger.journal.interpreter import current_folder, fresh_interpreter

log = logging.getLogger("kvledger.api")

START_SECONDS = 30.0
"""How long the process may take to import and to open the store; whoever asked first waits for it."""

END_SECONDS = 5.0
"""How long it may take to end before it is killed: it has nothing to lose."""

NICENESS = 10
"""Its priority: about a tenth of what the scheduler gets where both want the same core."""

PROGRAM = f"import os; os.nice({NICENESS}); from kvledger.api.apart.child import main; main()"
"""Niceness comes first: importing is most of what a start costs."""

Phase = Literal["idle", "starting", "up", "gone"]

_OWN: "weakref.WeakSet[OwnProcess]" = weakref.WeakSet()
"""Those of this interpreter."""


class OwnProcess:
    """One process, or none. Belongs to the service's event loop; what it tells of itself any thread may read.

    `begin` and `ask` start it; `close` ends it for good.
    """

    def __init__(self, orders: Orders, *, attempts: Attempts | None = None) -> None:
        self.phase: Phase = "idle"
        """`idle`: nobody has looked yet. `gone`: questions are answered in the service's own process."""
        self.problem: str | None = None
        self.answered = 0
        self.missed = 0
        """Questions that it had no answer to."""
        self.attempts = Attempts() if attempts is None else attempts
        self._orders = orders
        self._folder = current_folder()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._link: Link | None = None
        self._starting: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._closed = False
        _OWN.add(self)

    @property
    def pid(self) -> int | None:
        """The number of the process; None where there is none."""
        process = self._process
        return None if process is None else process.pid

    def begin(self) -> None:
        """Let it start, where it never has: somebody looks, and may ask about the past next."""
        if self.phase == "idle":
            self._begin()

    async def ask(self, question: Any, body: bytes = b"") -> Answered:
        """One question to its answer; waits while the process starts.

        Raises ProcessGone where there is none, or where it ended meanwhile.
        """
        try:
            link = await self._linked()
            answer = await link.ask(question, body)
        except ProcessGone:
            self.missed += 1
            raise
        self.answered += 1
        return answer

    async def close(self) -> None:
        """End it and wait for its end. From now on there is none."""
        self._closed = True
        if self._link is not None:
            self._link.close()
        if self._starting is not None:
            await self._starting
        if self._watching is not None:
            await self._watching

    def kill(self) -> None:
        """End it at once, from any thread: this process is about to end."""
        self._closed = True
        process = self._process
        if process is not None:
            process.kill()
            process.wait()

    def forget(self) -> None:
        """In a child that was forked: the process is the parent's, and must see the parent's end."""
        self._closed = True
        self._process = None
        if self._socket is not None:
            self._socket.close()

    async def _linked(self) -> Link:
        """The connection, once there is one. Raises ProcessGone."""
        if self.phase in ("idle", "gone"):
            self._begin()
        if self._starting is not None:
            # Shielded: one reader that goes must not end it for the others.
            await asyncio.shield(self._starting)
        if self._link is None:
            raise ProcessGone("there is no process for past states")
        return self._link

    def _begin(self) -> None:
        if self._closed or not self.attempts.begin():
            return
        self.phase = "starting"
        self._starting = asyncio.get_running_loop().create_task(self._start())

    async def _start(self) -> None:
        try:
            await self._started()
        except Exception as error:
            # Whatever it was, the service goes on without it.
            self._gone(f"it did not start: {str(error) or type(error).__name__}")
        finally:
            self._starting = None

    async def _started(self) -> None:
        """Spawn it, tell it what to serve and wait until it does."""
        process, self._socket = await run_in_threadpool(_spawn, self._folder)
        self._process = process
        self._link = link = Link()
        loop = asyncio.get_running_loop()
        try:
            await loop.create_unix_connection(lambda: link, sock=self._socket)
            if self._closed:
                raise ProcessGone("the service is going down")
            await asyncio.wait_for(link.open(self._orders.told()), START_SECONDS)
        except BaseException:
            link.close()
            if self._socket is not None:
                self._socket.close()
                self._socket = None
            self._link = None
            await run_in_threadpool(_end, process)
            self._process = None
            raise
        self.phase, self.problem = "up", None
        self._watching = loop.create_task(self._watch(process, link))

    async def _watch(self, process: "subprocess.Popen[bytes]", link: Link) -> None:
        """Wait for its end, and take its exit status. Another one begins only after that."""
        await link.ended.wait()
        self._link = None
        status = await run_in_threadpool(_end, process)
        self._process = None
        self._gone(f"it ended with status {status}")

    def _gone(self, problem: str) -> None:
        self.phase, self.problem = "gone", problem
        if not self._closed:
            log.warning("the process for past states is gone, they are computed in this one: %s", problem)


def _spawn(folder: str) -> "tuple[subprocess.Popen[bytes], socket.socket]":
    """A fresh interpreter, and this side of the connection to it. Raises OSError, ValueError.

    A child that another thread forks meanwhile may keep both ends open. Nobody waits for long because of it:
    `_end` for `END_SECONDS`, a question until its link has been silent for too long, and the process looks at
    its parent.
    """
    ours, theirs = socket.socketpair()
    try:
        process = fresh_interpreter(PROGRAM, folder=folder, stdin=theirs.fileno())
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    ours.setblocking(False)
    return process, ours


def _end(process: "subprocess.Popen[bytes]") -> int:
    """Wait for the end of a process whose connection was closed, and kill one that does not."""
    try:
        return process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _end_all() -> None:
    for one in list(_OWN):
        one.kill()


def _forget_all() -> None:
    for one in list(_OWN):
        one.forget()
    _OWN.clear()


atexit.register(_end_all)
os.register_at_fork(after_in_child=_forget_all)
