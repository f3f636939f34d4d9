"""`kvledger bench hits` serves a workload in every order of eviction and sets hits against references."""

import json
from typing import Any

import pytest

from kvledger.core import CacheConfig
from kvledger.tools.bench.hits import PUBLISHING, bench_hits, eviction_orders
from kvledger.tools.bench.hits_simulated import ORDERS
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
    assert [figure["order"] for figure in report["simulated"]] == list(ORDERS)
    for figure in report["simulated"]:
        assert 0 < figure["hit_ratio"] <= report["unlimited_ratio"]
        assert figure["hit_tokens"] == round(figure["hit_ratio"] * report["bounds"]["prompt_tokens"])
        assert figure["share_of_oracle"] == pytest.approx(
            figure["hit_tokens"] / report["bounds"]["oracle_tokens"], abs=1e-5
        )


def test_the_page_names_references_and_orders(capsys: pytest.CaptureFixture[str]) -> None:
    page = printed(capsys, "bench", "hits", *SMALL)
    assert "without limits" in page
    assert "an oracle" in page
    served, _, only_simulated = page.partition("simulated only, without tree or windows")
    assert all(word in served for word in (*PUBLISHING, *eviction_orders()))
    assert "s3-fifo" not in served
    assert all(word in only_simulated for word in ("simulated order", *ORDERS))


def test_the_hits_of_two_runs_are_equal() -> None:
    first, second = (
        ([(one.hit_tokens, one.lost_to_swa, one.refused) for one in report.figures], report.simulated)
        for report in (measured(), measured())
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
    assert all(figure.hit_tokens == report.bounds.unlimited_tokens for figure in report.simulated)


def test_requests_that_fit_no_pool_are_told_and_count_as_missed() -> None:
    report = measured(full_tokens=1_024, swa_tokens=1_024)
    assert all(0 < figure.refused <= 60 for figure in report.figures)
    assert all(figure.hit_tokens < report.bounds.prompt_tokens for figure in report.figures)


def test_prompts_are_cut_where_asked(capsys: pytest.CaptureFixture[str]) -> None:
    report: Any = json.loads(printed(capsys, "bench", "hits", *SMALL, "--max-prompt", "100", "--json"))
    assert report["bounds"]["prompt_tokens"] <= 60 * 100
    assert report["max_prompt"] == 100
