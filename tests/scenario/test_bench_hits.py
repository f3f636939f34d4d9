"""`kvledger bench hits` serves a workload in every order of eviction and sets hits against references."""

import json
from typing import Any

import pytest

from kvledger.core import CacheConfig
from kvledger.tools.bench.hits import PUBLISHING, bench_hits, eviction_orders
from kvledger.tools.bench.recording import traffic
from kvledger.tools.cli import main

SMALL = ("--requests", "60", "--seed", "3")


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def measured(**sizes: int) -> Any:
    work = traffic(trace=None, requests=60, seed=3)
    config = CacheConfig(
        **{"page_size": 16, "sliding_window": 128, "full_tokens": 24_576, "swa_tokens": 6_144, **sizes}
    )
    return bench_hits(list(work.requests), workload="w", config=config, concurrency=4, max_prompt=32_768)


def test_every_order_and_way_of_publishing_has_its_figure(capsys: pytest.CaptureFixture[str]) -> None:
    report: Any = json.loads(printed(capsys, "bench", "hits", *SMALL, "--json"))
    assert {"cpu", "python", "versions"} <= report["environment"].keys()
    assert report["requests"] == 60
    assert [(figure["publishing"], figure["eviction"]) for figure in report["figures"]] == [
        (publishing, eviction) for publishing in PUBLISHING for eviction in eviction_orders()
    ]
    for figure in report["figures"]:
        assert 0 < figure["hit_ratio"] <= report["unlimited_ratio"] < 1
        assert figure["hit_tokens"] == round(figure["hit_ratio"] * report["bounds"]["prompt_tokens"])
        assert figure["cpu_us_per_request"] > 0
    assert report["oracle_ratio"] <= report["unlimited_ratio"]


def test_the_page_names_references_and_orders(capsys: pytest.CaptureFixture[str]) -> None:
    page = printed(capsys, "bench", "hits", *SMALL)
    assert "without limits" in page
    assert "an oracle" in page
    assert all(word in page for word in (*PUBLISHING, *eviction_orders()))


def test_the_hits_of_two_runs_are_equal() -> None:
    first, second = (
        [(figure.hit_tokens, figure.lost_to_swa, figure.refused) for figure in measured().figures]
        for _ in range(2)
    )
    assert first == second


def test_with_room_for_everything_the_hits_are_those_without_limits() -> None:
    # Units of 64 tokens stand for smaller pages in the reference, so only pages of that size compare exactly.
    report = measured(page_size=64, full_tokens=640_000, swa_tokens=640_000)
    keep = [figure for figure in report.figures if figure.publishing == "keep"]
    assert keep
    for figure in keep:
        assert figure.hit_tokens == report.bounds.unlimited_tokens == report.bounds.oracle_tokens
        assert figure.lost_to_swa == 0
        assert figure.refused == 0


def test_requests_that_fit_no_pool_are_told_and_count_as_missed() -> None:
    report = measured(full_tokens=1_024, swa_tokens=1_024)
    assert all(0 < figure.refused <= 60 for figure in report.figures)
    assert all(figure.hit_tokens < report.bounds.prompt_tokens for figure in report.figures)


def test_prompts_are_cut_where_asked(capsys: pytest.CaptureFixture[str]) -> None:
    report: Any = json.loads(printed(capsys, "bench", "hits", *SMALL, "--max-prompt", "100", "--json"))
    assert report["bounds"]["prompt_tokens"] <= 60 * 100
    assert report["max_prompt"] == 100
