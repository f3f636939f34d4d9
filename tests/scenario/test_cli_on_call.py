"""What a person on call asks on the command line: who locks this, what goes next, why no longer a match."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from kvledger.api.metrics.tally import ANOMALIES, Tally
from kvledger.core import CacheConfig, HybridCache
from kvledger.journal import EventFilter, Journal
from kvledger.journal.lookups.marks import marks
from kvledger.tools.cli import main
from tests.scenario.test_cli_serve import without_the_extra
from tests.support.places import PLACES, arguments_for, keep_everywhere
from tests.support.private_tokens import NAMESPACES, leaks_in, live_privately
from tests.support.service import client_over, followed, recorded

LABEL = re.compile(r"ns-[0-9a-f]{12}")
PAGE = 4
CONFIG = CacheConfig(page_size=PAGE, sliding_window=8, full_tokens=64, swa_tokens=64)


class Shell:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: object) -> tuple[int, str, str]:
        status = main([str(word) for word in words])
        out, err = self._capsys.readouterr()
        return status, out, err

    def document(self, *words: object) -> Any:
        status, out, err = self(*words, "--json")
        assert (status, err) == (0, ""), err
        return json.loads(out)


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small run in two namespaces, n0 and n1."""
    return recorded(tmp_path_factory.mktemp("call"))


@pytest.fixture(scope="module")
def busy(database: Path) -> int:
    """A seq at which several requests lock one node."""
    with Journal.open(database, create=False) as store:
        opened = list(store.reader().find(EventFilter(kinds=("request_opened",))))
    return int(opened[30].seq)


@pytest.fixture(scope="module")
def client(database: Path) -> Iterator[TestClient]:
    with client_over(database) as client:
        followed(client)
        yield client


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("places")
    keep_everywhere(path)
    return path


def test_a_run_may_choose_the_order_of_eviction_and_its_journal_audits(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "lru-2.db"
    run = ["run", "--requests", "60", "--no-verify-kv", "--durability", "background", "--eviction", "lru-2"]
    assert shell.document(*run, "--db", path)["audit"]["verdict"] == "pass"
    assert shell.document("audit", path)["verdict"] == "pass"
    with Journal.open(path, create=False) as store:
        config = store.reader().recorded_config()
    assert config is not None
    assert config["eviction"] == "lru-2"


def test_what_a_policy_refuses_is_skipped_for_the_audit_and_no_anomaly_for_anybody(
    shell: Shell, tmp_path: Path
) -> None:
    path = tmp_path / "skip.db"
    run = ["run", "--requests", "30", "--seed", "3", "--no-verify-kv", "--durability", "background"]
    counts = shell.document(*run, "--locked-recovery", "skip", "--db", path)["audit"]["counts"]
    assert counts["anomalies"] == 0
    assert counts["skipped"] > 10
    assert shell.document("anomalies", path)["anomalies"] == []
    tally = Tally()
    with Journal.open(path, create=False) as store:
        reader = store.reader()
        (mark,) = marks(reader, first_seq=1, last_seq=reader.head().seq, buckets=1).counts
        for transaction in reader.transactions():
            tally.transaction(transaction)
    assert (mark.anomalies, mark.rollbacks) == (0, tally.rollbacks.total())
    assert tally.anomalies == dict.fromkeys(ANOMALIES, 0)
    assert tally.rollbacks["skipped"] == counts["skipped"]
    told = shell.document("events", path, "--kind", "rolled_back", "--limit", "10000")["events"]
    assert sum(one["event"]["cause"] == "skipped" for one in told) == counts["skipped"]


def test_a_node_tells_who_locks_it_since_when_as_the_service_does(
    shell: Shell, database: Path, busy: int, client: TestClient
) -> None:
    nodes = shell.document("show", "tree", database, "--at", busy)["nodes"]
    locked = max(nodes, key=lambda node: node["full_lock"])
    assert locked["full_lock"] > 1
    told = shell.document("show", "node", database, locked["node"], "--at", busy)
    assert {name: told[name] for name in locked} == locked
    served = client.get(f"/v1/journals/1/nodes/{locked['node']}", params={"at": busy}).json()
    assert told["holders_total"] == served["holders_total"] == locked["full_lock"]
    names = {
        "lease": "lease",
        "request": "request",
        "node": "node",
        "length": "length",
        "transaction": "transaction",
    }
    assert [
        (one["since_seq"], one["swa_from"], *(one[name] for name in names)) for one in told["holders"]
    ] == [
        (
            one["since_seq"],
            one["swa_from"] if one["swa_held"] else None,
            *(one[name] for name in names.values()),
        )
        for one in served["holders"]
    ]
    _, out, _ = shell("show", "node", database, locked["node"], "--at", busy)
    for one in told["holders"]:
        (gave,) = shell.document("events", database, "--from", one["since_seq"], "--to", one["since_seq"])[
            "events"
        ]
        assert (gave["event"]["lease"], gave["time"]) == (one["lease"], one["since"])
        assert f"lease {one['lease']} of {one['request']}: " in out
        assert f"since seq {one['since_seq']}, {one['since']}\n" in out
    free = next(node["node"] for node in nodes if not node["full_lock"])
    assert shell.document("show", "node", database, free, "--at", busy)["holders"] == []


def test_a_request_tells_since_when_its_lock_is_held(shell: Shell, database: Path, busy: int) -> None:
    requests = shell.document("show", "requests", database, "--at", busy)["requests"]
    _, out, _ = shell("show", "requests", database, "--at", busy)
    locked = [one for one in requests if one["lease"] is not None]
    assert locked
    for one in locked:
        (gave,) = shell.document(
            "events", database, "--from", one["locked_since_seq"], "--to", one["locked_since_seq"]
        )["events"]
        assert (gave["event"]["kind"], gave["event"]["lease"]) == ("lock_acquired", one["lease"])
        assert gave["time"] == one["locked_since"]
        assert f"since seq {one['locked_since_seq']}, {one['locked_since']}" in out
        assert shell.document("show", "request", database, one["request"], "--at", busy) == one


@pytest.mark.parametrize("place", PLACES)
def test_who_locks_is_told_the_same_wherever_the_journal_is_kept(
    shell: Shell, folder: Path, place: str
) -> None:
    (at,) = shell.document("events", folder / "run.db", "--request", "r3", "--kind", "request_opened")[
        "events"
    ]
    asked = ["--at", at["seq"] + 1]
    told = shell.document("show", "requests", folder / "run.db", *asked)
    assert all(one["locked_since_seq"] for one in told["requests"])
    assert shell.document("show", "requests", *arguments_for(folder, place), *asked) == told
    node = next(one["node"] for one in told["requests"] if one["node"] is not None)
    whole = shell.document("show", "node", folder / "run.db", node, *asked)
    assert whole["holders"]
    assert shell.document("show", "node", *arguments_for(folder, place), node, *asked) == whole


@pytest.mark.parametrize("pool", ["full", "swa"])
def test_a_slot_is_told_in_slots_now_and_in_its_history_as_by_the_service(
    shell: Shell, database: Path, busy: int, client: TestClient, pool: str
) -> None:
    nodes = shell.document("show", "tree", database, "--at", busy)["nodes"]
    node = next(one for one in nodes if one["swa_pages"])
    slot = node[f"{pool}_pages"][0] * 4 + 3
    served = client.get(f"/v1/journals/1/slots/{pool}/{slot}/history").json()["items"]
    options = ["--swa"] if pool == "swa" else []
    history = shell.document("history", "slot", database, slot, *options)["tenures"]
    facts = ("since", "until", "holder", "request", "node", "position", "beside", "began", "ended", "cause")
    assert [{name: one[name] for name in facts} for one in history] == [
        {name: one[name] for name in facts} for one in served
    ]
    assert {one["position"] % 4 for one in history if one["position"] is not None} == {3}
    assert {one["beside"] % 4 for one in history if one["beside"] is not None} == {3}
    _, out, _ = shell("history", "slot", database, slot, *options)
    assert f", token {history[0]['position']}, beside slot {history[0]['beside']};" in out
    if pool == "full":
        told = shell.document("show", "slot", database, slot, "--at", busy)
        now = client.get(f"/v1/journals/1/slots/full/{slot}", params={"at": busy}).json()
        assert (told["position"], told["beside"]) == (now["position"], now["beside"])
        assert told["beside"] is not None
        held = [
            one for one in history if one["since"] <= busy and (one["until"] is None or busy < one["until"])
        ]
        assert [(one["position"], one["beside"]) for one in held] == [(told["position"], told["beside"])]


@pytest.fixture(scope="module")
def last(folder: Path) -> int:
    """A seq at which the request "last" is open, and the tree has a node of its namespace alone."""
    with Journal.open(folder / "run.db", create=False) as store:
        rows = store.reader().find(EventFilter(kinds=("request_row_changed",)))
        return max(int(one.seq) for one in rows if getattr(one.event, "request_id", None) == "last")


LOOKING = [
    ["events", "DB", "--limit", "10000"],
    ["tail", "DB", "-n", "10000"],
    ["anomalies", "DB"],
    ["transactions", "DB"],
    ["history", "request", "DB", "r3"],
    ["history", "node", "DB", "1"],
    ["history", "slot", "DB", "40"],
    ["show", "journals", "DB"],
    ["show", "tree", "DB", "--at", "LAST"],
    ["show", "node", "DB", "NODE", "--at", "LAST"],
    ["show", "requests", "DB", "--at", "LAST"],
    ["show", "request", "DB", "last", "--at", "LAST"],
    ["show", "slot", "DB", "40"],
    ["show", "eviction", "DB"],
    ["explain", "DB", "1511001234", "7", "7", "7", "--namespace", NAMESPACES[0]],
    ["diff", "DB", "--from", "100"],
]


@pytest.mark.parametrize("words", LOOKING, ids=lambda words: " ".join(words[:2]))
def test_no_command_shows_a_namespace_unless_it_is_to_be_revealed(
    shell: Shell, folder: Path, last: int, words: list[str]
) -> None:
    path = folder / "run.db"
    node = shell.document("show", "tree", path, "--at", last)["nodes"][0]["node"]
    asked = [{"DB": path, "NODE": node, "LAST": last}.get(word, word) for word in words]
    for form in ([], ["--json"]):
        status, out, _ = shell(*asked, *form)
        assert status == 0
        assert not [name for name in NAMESPACES if name in out]


@pytest.mark.parametrize(
    "words",
    [
        ["events", "DB", "--kind", "node_created"],
        ["tail", "DB", "-n", "10000"],
        ["history", "request", "DB", "last"],
        ["history", "node", "DB", "NODE"],
        ["show", "tree", "DB", "--at", "LAST"],
        ["show", "node", "DB", "NODE", "--at", "LAST"],
        ["show", "requests", "DB", "--at", "LAST"],
        ["show", "request", "DB", "last", "--at", "LAST"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_hidden_namespace_has_one_label_in_every_command_and_its_name_when_revealed(
    shell: Shell, folder: Path, last: int, words: list[str]
) -> None:
    path = folder / "run.db"
    node = shell.document("show", "tree", path, "--at", last)["nodes"][0]["node"]
    asked = [{"DB": path, "NODE": node, "LAST": last}.get(word, word) for word in words]
    labels = {
        shell.document("show", "tree", path, "--namespace", name, *at)["nodes"][0]["namespace"]: name
        for name, at in zip(NAMESPACES, ((), ("--at", last)), strict=True)
    }
    hidden = shell(*asked)[1]
    assert labels.keys() >= set(LABEL.findall(hidden)) != set()
    shown = shell(*asked, "--reveal-tokens")[1]
    assert LABEL.findall(shown) == []
    assert {labels[label] for label in LABEL.findall(hidden)} == {
        name for name in NAMESPACES if name in shown
    }


def test_a_label_is_the_same_at_every_seq_and_place_and_can_be_asked_for(shell: Shell, folder: Path) -> None:
    path = folder / "run.db"
    late = shell.document("show", "tree", path)["nodes"]
    early = shell.document("show", "tree", path, "--at", "20")["nodes"]
    (label,) = {node["namespace"] for node in early}
    assert label in {node["namespace"] for node in late}
    assert shell.document("show", "tree", path, "--at", "20", "--namespace", label)["nodes"] == early
    assert shell.document("show", "tree", *arguments_for(folder, "parquet"), "--at", "20")["nodes"] == early
    with Journal.open(folder / "other.db") as store, store.record() as recorder:
        live_privately(recorder)
    other = {node["namespace"] for node in shell.document("show", "tree", folder / "other.db")["nodes"]}
    assert not other & {node["namespace"] for node in late}


def test_a_namespace_that_is_not_there_is_refused_with_labels_alone(shell: Shell, folder: Path) -> None:
    for words in (["show", "tree", folder / "run.db"], ["explain", folder / "run.db", "1"]):
        status, out, err = shell(*words, "--namespace", "tenant-corona")
        assert (status, out) == (2, "")
        assert len(LABEL.findall(err)) == 1
        assert leaks_in(err.encode()) == set()
        assert NAMESPACES[0] in shell(*words, "--namespace", "tenant-corona", "--reveal-tokens")[2]


def test_explain_says_what_the_service_says(shell: Shell, database: Path, busy: int, tmp_path: Path) -> None:
    prompt = [0] * 24 + [51] * 9
    told = shell.document("explain", database, *prompt, "--namespace", "n0")
    assert told["length"] > 0
    with client_over(database, reveal=True) as revealing:
        followed(revealing)
        served = revealing.post("/v1/journals/1/explain", json={"tokens": prompt, "namespace": "n0"}).json()
    assert {**told, "at": None} == {**served, "at": None}
    assert told["at"]["seq"] == served["at"]["seq"]
    status, out, err = shell("explain", database, *prompt, "--namespace", "n0")
    assert (status, err) == (0, "")
    assert told["sentence"] in out
    assert f"path: {told['path'][0]}" in out
    for text in (json.dumps(prompt), "\n".join(map(str, prompt)), ", ".join(map(str, prompt))):
        file = tmp_path / "prompt"
        file.write_text(text)
        assert shell.document("explain", database, "--file", file, "--namespace", "n0") == told
    early = shell.document("explain", database, *prompt, "--namespace", "n0", "--at", busy)
    assert early["at"]["seq"] <= busy < told["at"]["seq"]


@pytest.mark.parametrize("emptied", [False, True])
@pytest.mark.parametrize("namespace", ["", "n0"])
def test_explain_of_an_empty_tree_says_what_the_service_says(
    shell: Shell, tmp_path: Path, emptied: bool, namespace: str
) -> None:
    path = tmp_path / "empty.db"
    with Journal.open(path) as store, store.record() as recorder:
        cache = HybridCache(CONFIG, sink=recorder)
        if emptied:
            cache.insert([1] * PAGE, cache.alloc(PAGE), namespace="n0")
            cache.reset()
    told = shell.document("explain", path, 1, 2, 3, 4, "--namespace", namespace)
    assert (told["length"], told["namespace_found"]) == (0, False)
    assert told["sentence"] == "0 of 4 tokens match: the tree is empty at this seq"
    with client_over(path, reveal=True) as revealing:
        followed(revealing)
        asked = {"tokens": [1, 2, 3, 4], "namespace": namespace}
        answer = revealing.post("/v1/journals/1/explain", json=asked)
    assert answer.status_code == 200
    assert {**told, "at": None} == {**answer.json(), "at": None}
    assert told["at"]["seq"] == answer.json()["at"]["seq"]
    status, out, err = shell("explain", path, 1, 2, 3, 4, "--namespace", namespace)
    assert (status, out, err) == (0, f"seq {told['at']['seq']}: {told['sentence']}\n", "")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "one way"),
        (["1", "--file", "FILE"], "one way"),
        (["one"], "'one' is no token id"),
        (["4294967296"], "outside int32"),
        (["--file", "/nowhere/prompt"], "cannot be read"),
        (["--file", "FILE"], "names no token"),
    ],
)
def test_explain_refuses_what_is_no_list_of_tokens(
    shell: Shell, database: Path, tmp_path: Path, words: list[str], sentence: str
) -> None:
    file = tmp_path / "prompt"
    file.write_text("[]")
    asked = [str(file) if word == "FILE" else word for word in words]
    status, out, err = shell("explain", database, *asked, "--namespace", "n0")
    assert (status, out) == (2, "")
    assert sentence in err


def test_explain_of_a_journal_without_tokens_says_that_it_keeps_none(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "none.db"
    assert shell("run", "--requests", "3", "--tokens", "none", "--no-verify-kv", "--db", path)[0] == 0
    names = {node["namespace"] for node in shell.document("show", "tree", path, "--reveal-tokens")["nodes"]}
    status, out, err = shell("explain", path, "1", "--namespace", names.pop())
    assert (status, out) == (2, "")
    assert "keeps no tokens" in err


@pytest.mark.parametrize("pool", ["full", "swa"])
def test_show_eviction_says_what_the_service_says(
    shell: Shell, database: Path, busy: int, client: TestClient, pool: str
) -> None:
    told = shell.document("show", "eviction", database, "--pool", pool, "--at", busy, "--limit", "5")
    served = client.get(f"/v1/journals/1/eviction/{pool}", params={"at": busy, "limit": 5}).json()
    assert told["candidates"]
    assert {**told, "at": None} == {**served, "at": None}
    _, out, _ = shell("show", "eviction", database, "--pool", pool, "--at", busy, "--limit", "5")
    assert re.findall(r"^  node (\d+) ", out, re.M) == [str(one["node"]) for one in told["candidates"]]
    assert told["sentence"] in out


@pytest.mark.parametrize("words", [["explain", "DB", "1"], ["show", "eviction", "DB"], ["bench", "inspect"]])
def test_without_the_extra_they_say_what_to_install(database: Path, words: list[str]) -> None:
    ((status, out, err),) = without_the_extra([str(database) if word == "DB" else word for word in words])
    assert (status, out) == (2, "")
    assert "needs more packages: pip install 'kvledger[api]' (fastapi is missing)" in err


@pytest.mark.parametrize(
    ("words", "sentence", "items"),
    [
        (["events", "DB", "--node", "99999"], "no events match", "events"),
        (["transactions", "DB", "--op", "nothing"], "no transactions match", "transactions"),
        (["anomalies", "DB"], "no anomalies", "anomalies"),
        (["history", "slot", "DB", "12", "--to", "2"], "tells of a holder of slot 12", "tenures"),
    ],
)
def test_an_empty_list_says_so_beside_the_output_and_is_empty_in_json(
    shell: Shell, database: Path, words: list[str], sentence: str, items: str
) -> None:
    asked = [str(database) if word == "DB" else word for word in words]
    status, out, err = shell(*asked)
    assert (status, out) == (0, "")
    assert err.count("\n") == 1
    assert sentence in err
    assert shell.document(*asked)[items] == []


def test_an_empty_database_says_that_it_has_nothing(shell: Shell, tmp_path: Path) -> None:
    with Journal.open(tmp_path / "empty.db"):
        pass
    assert shell("show", "journals", tmp_path / "empty.db") == (0, "", "no journals\n")
    assert shell.document("show", "journals", tmp_path / "empty.db") == {"journals": []}
    with Journal.open(tmp_path / "empty.db") as store, store.record():
        pass
    assert shell("tail", tmp_path / "empty.db") == (0, "", "no events yet\n")
    assert shell("tail", tmp_path / "empty.db", "--json") == (0, "", "")


def test_a_rollback_names_the_seqs_that_it_undid(shell: Shell, folder: Path) -> None:
    path = folder / "run.db"
    events = shell.document("events", path, "--limit", "10000")["events"]
    rollbacks = [one for one in events if one["event"]["kind"] == "rolled_back"]
    lines = shell("events", path, "--kind", "rolled_back")[1].splitlines()
    assert len(rollbacks) == len(lines) > 4
    undone = {one["seq"] for one in events if one["undone"]}
    named: set[int] = set()
    for one, line in zip(rollbacks, lines, strict=True):
        first, last = one["undid"]
        assert last == one["seq"] - 1
        assert last - first + 1 == one["event"]["end"] - one["event"]["first"]
        assert {event["transaction"] for event in events if first <= event["seq"] <= last} == {
            one["transaction"]
        }
        assert f"undid={first}-{last} " in line or f"undid={first} " in line
        assert not re.search(r"\b(first|end)=", line)
        named |= set(range(first, last + 1))
    assert named == undone
    assert all(one["undid"] is None for one in events if one["event"]["kind"] != "rolled_back")
