"""`shared_prefixes(model)` and nothing else: pools that follow from the model, a journal beside the user."""

from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from kvledger.core import KVLayout
from kvledger.core.errors import JournalError
from kvledger.journal import Journal
from kvledger.journal.chain import ChainHead
from kvledger.tools.cli import app
from kvledger.tools.embed.transformers import UnsupportedSetup, shared_prefixes
from kvledger.tools.embed.transformers.sharing import DEFAULT_JOURNAL
from kvledger.tools.embed.transformers.sizes import HOST_BYTES, pool_sizes, sizes_within
from kvledger.tools.embed.transformers.support import DEFAULT_BATCH_TOKENS, swa_floor
from tests.support.batching import prompts_with_heads, run_batching, tiny_model


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    return tiny_model("gemma3", 18)


def head(journal: int) -> ChainHead:
    with Journal.open(DEFAULT_JOURNAL, create=False) as opened:
        return opened.reader(journal).head()


def test_one_argument_is_enough_and_the_journal_lies_where_the_documentation_says(
    model: Any, tmp_path: Path
) -> None:
    with shared_prefixes(model) as ledger:
        run = run_batching(model, prompts_with_heads(heads=[40], tails=[5], copies=3))
    assert not run.errors
    assert ledger.report().prefill_tokens_saved > 0
    assert DEFAULT_JOURNAL == "kvledger-transformers.db"
    assert str(ledger.report()).endswith("journal 1 in kvledger-transformers.db")
    assert [path.name for path in tmp_path.iterdir()] == [DEFAULT_JOURNAL]
    assert CliRunner().invoke(app, ["audit", DEFAULT_JOURNAL]).exit_code == 0


def test_a_journal_that_nobody_asked_for_holds_nobodys_tokens(model: Any) -> None:
    with shared_prefixes(model):
        run_batching(model, [[1, 2, 3]])
    with Journal.open(DEFAULT_JOURNAL, create=False) as journal:
        assert [info.token_policy for info in journal.list()] == ["none"]


def test_each_block_adds_a_journal_and_leaves_those_that_are_there_alone(model: Any) -> None:
    for name in ("morning", "evening"):
        with shared_prefixes(model, name=name):
            run_batching(model, [[1, 2, 3]])
        if name == "morning":
            before = head(1)
    assert head(1) == before
    with Journal.open(DEFAULT_JOURNAL, create=False) as journal:
        assert {info.id: info.name for info in journal.list()} == {1: "morning", 2: "evening"}


def test_a_file_that_is_no_database_is_refused_and_stays_as_it_is(model: Any, tmp_path: Path) -> None:
    (tmp_path / DEFAULT_JOURNAL).write_text("notes of mine, " * 20)
    with pytest.raises(JournalError, match=r"kvledger-transformers\.db"), shared_prefixes(model):
        pass
    assert (tmp_path / DEFAULT_JOURNAL).read_text() == "notes of mine, " * 20
    assert "init_continuous_batching" not in vars(model)


def test_without_a_journal_no_file_is_made(model: Any, tmp_path: Path) -> None:
    with shared_prefixes(model, journal=None) as ledger:
        run_batching(model, [[1, 2, 3]])
    assert list(tmp_path.iterdir()) == []
    assert str(ledger.report()).endswith("no journal")


def test_nothing_is_written_before_the_block_begins(model: Any, tmp_path: Path) -> None:
    shared_prefixes(model)
    assert list(tmp_path.iterdir()) == []


# How large the pools are.

LAYOUT = KVLayout(full_layers=(1, 3), swa_layers=(0, 2, 4), kv_heads=4, head_dim=32, dtype="bfloat16")
TOKEN = 2 * 4 * 32 * 2
"""Bytes of one token in one layer."""


def taken(full_tokens: int, swa_tokens: int) -> int:
    """Bytes of the pools, and of two masks for the largest batch."""
    masks = 2 * DEFAULT_BATCH_TOKENS * (full_tokens + DEFAULT_BATCH_TOKENS) * 2
    return 2 * TOKEN * full_tokens + 3 * TOKEN * swa_tokens + masks


@pytest.mark.parametrize("page_size", [4, 16, 64])
@pytest.mark.parametrize("mib", [64, 256, 1_000, 70_000])
def test_pools_and_masks_fill_the_budget_to_the_page_and_no_further(mib: int, page_size: int) -> None:
    budget = mib * 2**20
    full, swa = sizes_within(budget, LAYOUT, window=511, page_size=page_size)
    assert full % page_size == swa % page_size == 0
    assert swa in (full // 4 // page_size * page_size, swa_floor(page_size, 511))
    assert taken(full, swa) <= budget < taken(full + page_size, swa + page_size)


def test_a_small_budget_still_holds_an_swa_pool_in_which_a_request_gets_on() -> None:
    full, swa = sizes_within(40 * 2**20, LAYOUT, window=1_023, page_size=16)
    assert swa == swa_floor(16, 1_023) < full < 4 * swa


def test_a_budget_that_holds_no_request_is_refused_with_what_to_say_instead() -> None:
    with pytest.raises(UnsupportedSetup, match=r"say full_tokens and swa_tokens \(1,072 or more of each\)"):
        sizes_within(20 * 2**20, LAYOUT, window=1_023, page_size=16)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ((4_096, 512), (4_096, 512)),
        ((4_096, None), (4_096, 1_024)),
        ((400, None), (400, 96)),
        ((96, None), (96, 80)),
        ((None, 512), (2_048, 512)),
    ],
)
def test_one_size_brings_the_other_with_it(
    asked: tuple[int | None, int | None], expected: tuple[int, int]
) -> None:
    found = pool_sizes(
        LAYOUT,
        device=torch.device("cpu"),
        window=31,
        page_size=16,
        full_tokens=asked[0],
        swa_tokens=asked[1],
    )
    assert found == expected


def test_on_a_cpu_the_budget_is_256_mib(model: Any) -> None:
    ledger = shared_prefixes(model)
    assert ledger.config.layout is not None
    sizes = sizes_within(HOST_BYTES, ledger.config.layout, window=17, page_size=16)
    assert HOST_BYTES == 256 * 2**20
    assert (ledger.config.full_tokens, ledger.config.swa_tokens) == sizes


def test_on_a_device_it_is_half_of_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (2**31, 2**34))
    found = pool_sizes(
        LAYOUT,
        device=torch.device("cuda"),
        window=31,
        page_size=16,
        full_tokens=None,
        swa_tokens=None,
    )
    assert found == sizes_within(2**30, LAYOUT, window=31, page_size=16)
