"""Which Accept-Encoding asks for gzip (RFC 9110, 12.5.3), and what an answer then says of itself."""

import gzip
import io
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from kvledger.api.compression import COMPRESSED_BYTES, wants_gzip
from tests.support.service import client_over, recorded

LARGE = "/v1/journals/1/tree?at=700"
SMALL = "/healthz"


@pytest.mark.parametrize(
    ("accepted", "wanted"),
    [
        ([], False),
        ([""], False),
        (["gzip"], True),
        (["GZip"], True),
        (["x-gzip"], True),
        (["gzip, deflate, br, zstd"], True),
        (["deflate", "br, gzip"], True),
        (["br"], False),
        (["notgzip"], False),
        (["gzip;q=0"], False),
        (["gzip; q=0.000"], False),
        (["gzip;Q=0"], False),
        (["gzip ; q = 0.001"], True),
        (["gzip;q=1.000"], True),
        (["gzip;q=0, *"], False),
        (["*"], True),
        (["*;q=0"], False),
        (["*;q=0, gzip"], True),
        (["identity"], False),
        (["identity;q=0"], False),
        (["identity;q=0, gzip"], True),
        (["identity;q=0, gzip;q=0"], False),
        (["identity;q=0, *"], True),
        (["identity, gzip;q=0.5"], False),
        (["identity;q=0.5, gzip;q=1"], True),
        (["identity;q=0.5, gzip;q=0.5"], True),
        (["gzip;q=0, x-gzip"], True),
        (["gzip;q=nothing"], False),
        (["gzip;q=-1"], False),
        (["gzip;q=2"], False),
        (["gzip;level=9"], False),
        ([",,;q=1,gzip"], True),
        (["gzip;"], True),
    ],
)
def test_gzip_is_wanted_where_it_is_named_and_not_liked_less_than_the_plain_answer(
    accepted: list[str], wanted: bool
) -> None:
    assert wants_gzip(accepted) is wanted


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with client_over(recorded(tmp_path_factory.mktemp("compression"))) as client:
        yield client


@pytest.mark.parametrize("accepted", ["gzip", "gzip;q=0", "gzip;q=0, *", "identity;q=0", "*", "br"])
def test_an_answer_is_compressed_for_who_wants_that_and_always_says_that_it_depends_on_it(
    client: TestClient, accepted: str
) -> None:
    plain = client.get(LARGE, headers={"Accept-Encoding": "identity"})
    with client.stream("GET", LARGE, headers={"Accept-Encoding": accepted}) as answer:
        raw = b"".join(answer.iter_raw())
    packed = wants_gzip([accepted])
    assert answer.headers.get("Content-Encoding") == ("gzip" if packed else None)
    assert answer.headers["Vary"] == plain.headers["Vary"] == "Accept-Encoding"
    assert (answer.headers["ETag"] != plain.headers["ETag"]) is packed
    assert len(plain.content) > COMPRESSED_BYTES
    assert (gzip.GzipFile(fileobj=io.BytesIO(raw)).read() if packed else raw) == plain.content


@pytest.mark.parametrize("accepted", ["gzip", "identity;q=0, gzip"])
def test_what_fits_a_packet_is_sent_as_it_is(client: TestClient, accepted: str) -> None:
    answer = client.get(SMALL, headers={"Accept-Encoding": accepted})
    assert "Content-Encoding" not in answer.headers
    assert answer.json() == {"status": "ok"}
