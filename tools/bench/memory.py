"""What a cached token and a node cost in the host's memory: caches of other projects and ours by one measure.

A process of its own fills a cache with prompts, each of which is one node, and tells by how much its resident
memory grew. From three such fills follows what a node costs and what a token. Nothing of this package is
imported here, so the file also runs where only another cache is installed, over the same harness:

    python tools/bench/memory.py --harness FOLDER --system urc-rust --page 64
"""

import argparse
import gc
import importlib
import json
import resource
import subprocess
import sys
from array import array
from pathlib import Path
from typing import Any, NamedTuple

OURS = "kvledger"
"""The system that needs no harness."""

SHORT, LONG = 64, 128
"""Tokens of a prompt, whole pages and within every window, so that no cache makes two nodes of one."""


class Footprint(NamedTuple):
    """Bytes of host memory a node, without its tokens, and a cached token."""

    system: str
    page_size: int
    nodes: int
    bytes_per_node: float
    bytes_per_token: float


def footprint(page: int, *, nodes: int, system: str = OURS, harness: Path | None = None) -> Footprint:
    """Measure our cache, or a system of the harness in the folder `harness`. In three processes, a minute.

    Raises CalledProcessError where the system does not run.
    """
    few, many, long = (
        _in_process_of_its_own(page, count, tokens, system=system, harness=harness)
        for count, tokens in ((nodes, SHORT), (2 * nodes, SHORT), (nodes, LONG))
    )
    per_token = (long - few) / (nodes * (LONG - SHORT))
    per_node = (many - few) / nodes - per_token * SHORT
    return Footprint(system, page, nodes, round(per_node, 1), round(per_token, 2))


def _in_process_of_its_own(page: int, nodes: int, tokens: int, *, system: str, harness: Path | None) -> int:
    """Bytes that one fill takes in a fresh process."""
    command = [sys.executable, __file__, "--system", system, "--page", str(page)]
    command += [] if harness is None else ["--harness", str(harness)]
    command += ["--nodes", str(nodes), "--fill", str(tokens)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(done.stdout.split()[-1])


def _fill(cache: Any, nodes: int, tokens: int) -> int:
    """Bytes that this process grows by while a cache takes `nodes` prompts that share nothing."""
    # What is loaded and allocated once, whatever is cached.
    cache.insert(cache.key(array("q", range(tokens))), cache.alloc(tokens), 0, 0)
    gc.collect()
    before = _resident()
    for first in range(tokens, (nodes + 1) * tokens, tokens):
        cache.insert(cache.key(array("q", range(first, first + tokens))), cache.alloc(tokens), 0, 0)
    gc.collect()
    return _resident() - before


def _made(system: str, harness: Path | None, page: int, room: int) -> Any:
    """The cache to measure, a `CacheUnderTest` with `room` tokens in each pool."""
    # In place of this file's own folder, whose names are those of others' modules.
    sys.path[0] = str(Path.cwd() if harness is None else harness)
    if system == OURS:
        adapter: Any = importlib.import_module("kvledger.tools.bench.peer_adapter")
        return adapter.Unrecorded(page, room, room)
    bench: Any = importlib.import_module("bench")
    if not system.startswith("adapter:"):
        bench.prepare_imports(bench.SG16 if system == "swa16" else bench.SG23)
    return bench.make_cache(system, page, room, room)


def _resident() -> int:
    """Bytes of memory that the process has now (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def main() -> None:
    """Print the footprint of one system as JSON, or with `--fill` the bytes of one fill in this process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--harness", type=Path, help="folder of the harness (bench.py, drivers.py)")
    parser.add_argument("--system", default=OURS, help="as the harness names it")
    parser.add_argument("--page", type=int, required=True)
    parser.add_argument("--nodes", type=int, default=20_000)
    parser.add_argument("--fill", type=int, help="tokens of each prompt")
    given = parser.parse_args()
    if given.fill is None:
        found = footprint(given.page, nodes=given.nodes, system=given.system, harness=given.harness)
        print(json.dumps(found._asdict()))
    else:
        cache = _made(given.system, given.harness, given.page, 2 * given.nodes * LONG)
        print(_fill(cache, given.nodes, given.fill))


if __name__ == "__main__":
    main()
