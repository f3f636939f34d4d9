"""The routes that show states: what they answer, what may be kept of it, and how lists go on."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from kvledger.core import CacheConfig, HybridCache
from kvledger.journal import Journal
from tests.support.service import client_over, followed, one_request, recorded

J = "/v1/journals/1"
STATES = (
    "/tree?rows=20",
    "/pools",
    "/pools/full/map",
    "/pools/swa/map?first_page=3&pages=9",
    "/eviction/full",
    "/eviction/swa?limit=3",
    "/requests",
    "/leases",
    "/slots/full/40",
    "/slots/swa/41",
)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    path: Path = recorded(tmp_path_factory.mktemp("routes"), checkpoint_every=300)
    with client_over(path, reveal=True) as made:
        followed(made)
        yield made


def got(client: TestClient, path: str, *, status: int = 200, **headers: str) -> Any:
    answer = client.get(J + path, headers=headers)
    assert answer.status_code == status, answer.text
    return answer.json() if answer.content else None


def at(path: str, seq: int) -> str:
    return f"{path}{'&' if '?' in path else '?'}at={seq}"


@pytest.mark.parametrize("path", STATES)
def test_an_answer_at_a_settled_seq_is_kept_and_not_computed_again(client: TestClient, path: str) -> None:
    first = client.get(J + at(path, 600))
    assert (first.status_code, first.json()["at"]["asked"]) == (200, 600)
    assert first.json()["at"]["settled"] is True
    assert "immutable" in first.headers["cache-control"]
    tag = first.headers["etag"]
    assert client.get(J + at(path, 600)).content == first.content
    again = client.get(J + at(path, 600), headers={"If-None-Match": tag})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    other = client.get(J + at(path, 700), headers={"If-None-Match": tag})
    assert (other.status_code, other.headers["etag"] != tag) == (200, True)


@pytest.mark.parametrize("path", STATES)
def test_the_newest_state_is_asked_for_again_each_time(client: TestClient, path: str) -> None:
    answer = client.get(J + path)
    assert answer.json()["at"]["settled"] is False
    assert answer.headers["cache-control"] == "no-cache"
    assert "etag" not in answer.headers
    last = answer.json()["at"]["seq"]
    newest = client.get(J + at(path, last))
    assert "etag" not in newest.headers
    assert newest.json() | {"at": None} == answer.json() | {"at": None}


def test_a_304_computes_no_state(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    path = J + "/tree?at=640"
    tag = client.get(path).headers["etag"]

    def refuse(*given: object) -> object:
        raise ZeroDivisionError("a state was computed")

    opened = client.app.state.library.opened(1)  # type: ignore[attr-defined]
    monkeypatch.setattr(type(opened.timeline), "state_at", refuse)
    assert client.get(path, headers={"If-None-Match": tag}).status_code == 304


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/tree?at=999999", 404),
        ("/tree?at=0", 404),
        ("/tree?root=99999", 404),
        ("/tree?at=-1", 422),
        ("/tree?rows=0", 422),
        ("/tree?rows=100000", 422),
        ("/tree?limit=5001", 422),
        ("/nodes/99999", 404),
        ("/nodes/99999?at=600", 404),
        ("/slots/full/3", 404),
        ("/slots/full/324", 404),
        ("/slots/swa/164", 404),
        ("/slots/mamba/4", 422),
        ("/slots/full/99999/history", 404),
        ("/pools/full/map?limit=0", 422),
        ("/eviction/full?limit=100000", 422),
        ("/requests/nobody", 404),
        ("/requests?cursor=nonsense", 422),
        ("/leases?cursor=nonsense", 422),
        ("/leases?node=99999", 404),
        ("/diff?from=600", 422),
        ("/diff?from=600&to=999999", 404),
    ],
)
def test_what_cannot_be_answered_is_a_problem(client: TestClient, path: str, status: int) -> None:
    answer = client.get(J + path)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert "etag" not in answer.headers
    assert answer.json()["detail"]


@pytest.mark.parametrize("path", ["/requests", "/leases"])
def test_a_list_goes_on_where_its_page_ended(client: TestClient, path: str) -> None:
    whole = got(client, at(path, 900))
    assert whole["total"] == len(whole["items"]) > 1
    items, cursor = [], ""
    while cursor is not None:
        page = got(client, at(path, 900) + "&limit=1" + (f"&cursor={cursor}" if cursor else ""))
        assert page["total"] == whole["total"]
        items += page["items"]
        cursor = page["next"]
    assert items == whole["items"]


def test_who_locks_a_node_and_since_when(client: TestClient) -> None:
    tree = got(client, "/tree?at=900&rows=1000")
    locked = [node for node in tree["nodes"] if node["full_lock"]]
    assert locked
    for brief in locked:
        node = got(client, f"/nodes/{brief['id']}?at=900")
        assert node["holders_total"] == len(node["holders"]) == brief["full_lock"]
        assert got(client, f"/leases?at=900&node={brief['id']}")["items"] == node["holders"]
        for holder in node["holders"]:
            event = got(client, f"/events/{holder['since_seq']}")
            assert (event["data"]["kind"], event["data"]["lease"]) == ("lock_acquired", holder["lease"])
            assert holder["since_seq"] <= 900
            request = got(client, f"/requests/{holder['request']}?at=900")
            assert request["request"]["lease"] == holder


def test_a_node_tells_its_slots_its_tokens_and_where_they_came_from(client: TestClient) -> None:
    tree = got(client, "/tree?at=900&rows=1000")
    for brief in tree["nodes"]:
        node = got(client, f"/nodes/{brief['id']}?at=900")
        tokens = brief["end"] - brief["start"]
        assert node["full_slots"]["total"] == tokens == node["tokens"]["count"] == len(node["tokens"]["ids"])
        assert (node["swa_slots"] is None) == brief["tombstone"]
        assert node["path"][-1] == brief["id"]
        assert {**node["node"], "rows_hidden": 0} == {**brief, "rows_hidden": 0}
        assert node["provenance"]
        first = node["full_slots"]["runs"][0][0]
        assert got(client, f"/slots/full/{first}?at=900")["node"] == brief["id"]


def test_what_was_hidden_stays_hidden(tmp_path: Path) -> None:
    with client_over(recorded(tmp_path)) as client:
        followed(client)
        tree = got(client, "/tree?rows=100")
        assert all(name.startswith("ns-") for name in tree["namespaces"])
        part = got(client, f"/tree?namespace={tree['namespaces'][0]}")
        assert {node["namespace"] for node in part["nodes"]} == {tree["namespaces"][0]}
        named = got(client, "/tree?namespace=n0")
        assert (named["nodes_total"], named["namespace_found"]) == (0, False)
        assert part["namespace_found"] is True
        assert "labels" in named["sentence"]
        told = client.post(J + "/explain", json={"tokens": [0] * 24, "namespace": "n0"}).json()
        assert told["namespace_found"] is False
        assert told["sentence"] == f"0 of 24 tokens match: {named['sentence']}"
        node = got(client, f"/nodes/{tree['nodes'][0]['id']}")
        assert node["tokens"]["ids"] is None


def test_an_explanation_walks_the_tree_at_the_seq_asked_for(client: TestClient) -> None:
    asked = {"tokens": [0] * 24 + [49] * 8, "namespace": "n0"}
    early = client.post(J + "/explain", json=asked | {"at": 3}).json()
    late = client.post(J + "/explain", json=asked | {"at": 1_200}).json()
    assert (early["length"], early["full_length"], late["full_length"]) == (0, 0, 24)
    assert late["path"]
    short = client.post(J + "/explain", json={"tokens": [0], "namespace": "n0"}).json()
    assert short["sentence"] == "0 of 1 tokens match: they do not fill a page, and only whole pages can match"
    assert client.post(J + "/explain", json={"tokens": [2**31]}).status_code == 422
    assert client.post(J + "/explain", json={"tokens": [1], "more": 1}).status_code == 422
    assert client.post(J + "/explain", json=asked | {"at": 10**9}).status_code == 404


@pytest.mark.parametrize(
    ("namespace", "sentence"),
    [
        ("nobody", "no namespace of this name is in the tree at this seq"),
        ("ns-0123456789ab", "no namespace of this name is in the tree at this seq"),
        ("", "the default namespace holds nothing at this seq"),
    ],
)
def test_a_namespace_that_is_not_there_is_said_not_to_be(
    client: TestClient, namespace: str, sentence: str
) -> None:
    told = client.post(J + "/explain", json={"tokens": [0] * 24, "namespace": namespace}).json()
    assert (told["namespace_found"], told["length"]) == (False, 0)
    assert told["sentence"] == f"0 of 24 tokens match: {sentence}"
    tree = client.get(J + "/tree", params={"namespace": namespace}).json()
    assert (tree["namespace_found"], tree["sentence"], tree["nodes"]) == (False, sentence, [])
    there = got(client, "/tree?namespace=n0")
    assert (there["namespace_found"], there["sentence"]) == (True, None)
    assert got(client, "/tree")["namespace_found"] is None


def test_eviction_says_why_there_is_nothing_to_take(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    with Journal.open(path) as store, store.record() as recorder:
        config = CacheConfig(page_size=4, sliding_window=8, full_tokens=320, swa_tokens=160)
        cache = HybridCache(config, sink=recorder)
        seqs = [int(recorder.last_seq)]
        request = cache.open_request("one", list(range(8)))
        request.extend(8)
        request.computed()
        request.commit()
        seqs.append(int(recorder.last_seq))
        request.append(list(range(24)))
        request.extend(24)
        request.computed()
        request.slide()
        cache.evict(swa_tokens=160)
        seqs.append(int(recorder.last_seq))
        request.finish()
    with client_over(path) as client:
        followed(client)
        told = {
            (pool, place): got(client, f"/eviction/{pool}?at={seq}")
            for place, seq in enumerate(seqs)
            for pool in ("full", "swa")
        }
        for pool in ("full", "swa"):
            assert "the tree is empty" in told[pool, 0]["sentence"]
        assert told["full", 1]["sentence"] == "nothing can be evicted: Full is locked in every node (1)"
        assert (
            told["swa", 1]["sentence"]
            == "nothing can be evicted: SWA is locked in every node that has any (1)"
        )
        assert told["swa", 2]["sentence"] == "nothing can be evicted: no node (1) has SWA"
        assert not any(answer["candidates"] for answer in told.values())
        last = got(client, "/eviction/full")
        assert last["sentence"] == f"{last['evictable_tokens']} tokens of this pool could be evicted"
        assert last["evictable_tokens"] > 0


@pytest.mark.parametrize("how", [{"tokens": "hash", "key": b"k" * 16}, {"tokens": "none"}])
def test_without_stored_tokens_nothing_is_explained(tmp_path: Path, how: dict[str, Any]) -> None:
    with client_over(recorded(tmp_path, **how)) as client:
        followed(client)
        answer = client.post(J + "/explain", json={"tokens": [1, 2, 3, 4]})
        assert (answer.status_code, answer.json()["title"]) == (409, "Tokens are not stored")
        assert got(client, "/tree")["nodes"][0]["nodes_below"] >= 0


def test_a_difference_is_what_the_two_trees_do_not_share(client: TestClient) -> None:
    found = got(client, "/diff?from=500&to=900")
    before = {node["id"] for node in got(client, "/tree?at=500&rows=1000")["nodes"]}
    after = {node["id"] for node in got(client, "/tree?at=900&rows=1000")["nodes"]}
    assert set(map(int, found["nodes"]["added"])) == after - before
    assert set(map(int, found["nodes"]["removed"])) == before - after
    assert {int(one["id"]) for one in found["nodes"]["changed"]} <= before & after
    same = got(client, "/diff?from=600&to=600")
    assert (same["nodes"]["added_total"], same["pools"]) == (0, [])


def test_the_history_of_a_slot_is_told_page_by_page(client: TestClient) -> None:
    whole = got(client, "/slots/full/41/history")
    assert len(whole["items"]) > 2
    items, cursor = [], ""
    while cursor is not None:
        page = got(client, "/slots/full/41/history?limit=1" + (f"&cursor={cursor}" if cursor else ""))
        items += page["items"]
        cursor = page["next"]
    assert items == whole["items"]
    for tenure in whole["items"]:
        slot = got(client, f"/slots/full/41?at={got(client, at('/pools', tenure['since']))['at']['seq']}")
        if slot["place"] == "tree" and tenure["holder"] == "node" and slot["node"] == tenure["node"]:
            assert slot["position"] == tenure["position"]


def test_a_request_with_a_slash_in_its_id_is_found(tmp_path: Path) -> None:
    path = tmp_path / "slash.db"
    with Journal.open(path) as store, store.record() as recorder:
        cache = HybridCache(
            CacheConfig(page_size=4, sliding_window=8, full_tokens=320, swa_tokens=160), sink=recorder
        )
        cache.open_request("tenant/a b?c", list(range(9))).extend(9)
    with client_over(path) as client:
        followed(client)
        (item,) = got(client, "/requests")["items"]
        assert item["id"] == "tenant/a b?c"
        assert got(client, "/requests/tenant/a%20b%3Fc")["request"] == item
        assert got(client, "/request-history?request=tenant/a%20b%3Fc")["items"]


def test_an_answer_that_may_be_kept_for_ever_does_not_say_that_it_may_change(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    with Journal.open(path) as store, store.record() as recorder, client_over(path) as client:
        cache = one_request(recorder, name="early")
        recorder.flush()
        last = followed(client)["last_seq"]
        address = f"/v1/journals/1/pools?at={last}"
        assert client.get(address).json()["at"]["settled"] is False
        # The follower has not heard of what comes now.
        client.app.state.library.opened(1).timeline.stop()  # type: ignore[attr-defined]
        cache.open_request("later", [1, 2, 3])
        recorder.flush()
        later = client.get(address)
        assert "immutable" in later.headers["Cache-Control"]
        assert later.json()["at"]["settled"] is True


def life_of_a_node(client: TestClient) -> tuple[int, int, int]:
    """A node that came and went: its id, a seq at which it is there, and one at which it is no more."""
    gone = got(client, "/events?kind=node_deleted&undone=false&limit=1&order=asc")["items"][0]
    node = gone["node"]
    born = got(client, f"/nodes/{node}/history?limit=1")["items"][0]["seq"]
    end = got(client, f"/transactions/{gone['transaction']}")
    assert born < end["first_seq"] - 1
    return node, end["first_seq"] - 1, end["first_seq"] + end["events"] - 1


@pytest.mark.parametrize("path", ["/nodes/{}", "/tree?root={}"])
def test_a_node_that_is_not_there_at_a_seq_is_refused_or_told_as_one_asks(
    client: TestClient, path: str
) -> None:
    node, there, after = life_of_a_node(client)
    asked = path.format(node)
    for seq in (8, after):
        got(client, at(asked, seq), status=404)
        got(client, at(asked, seq) + "&absent=refuse", status=404)
        told = client.get(J + at(asked, seq) + "&absent=tell")
        assert told.status_code == 200
        assert told.json() == {
            "at": got(client, at("/pools", seq))["at"],
            "absent": True,
            "sentence": f"node {node} is not in the tree at this seq; its history tells more",
        }
        again = client.get(
            J + at(asked, seq) + "&absent=tell", headers={"If-None-Match": told.headers["etag"]}
        )
        assert again.status_code == 304
    assert got(client, at(asked, there) + "&absent=tell") == got(client, at(asked, there))


def test_a_request_that_is_not_open_at_a_seq_is_refused_or_told_as_one_asks(client: TestClient) -> None:
    name = got(client, at("/requests", 600))["items"][0]["id"]
    path = f"/requests/{name}"
    assert got(client, at(path, 600) + "&absent=tell") == got(client, at(path, 600))
    got(client, at(path, 8), status=404)
    told = got(client, at(path, 8) + "&absent=tell")
    assert (told["absent"], told["at"]["asked"]) == (True, 8)
    assert "no request of this id is open" in told["sentence"]
    assert got(client, "/requests/nobody?absent=tell")["at"]["asked"] is None


@pytest.mark.parametrize(
    ("query", "status"),
    [("at=99999999&absent=tell", 404), ("at=0&absent=tell", 404), ("absent=perhaps", 422), ("absent=", 422)],
)
def test_a_seq_that_is_not_there_is_refused_whatever_is_asked_of_absence(
    client: TestClient, query: str, status: int
) -> None:
    for path in ("/nodes/1", "/tree", "/requests/r1"):
        got(client, f"{path}?{query}", status=status)
