"""`kvledger bench device` counts what reaches the device: a copy for a prefix, an update for a commit."""

import json
import sys
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.autograd import DeviceType

from kvledger.core import HybridCache, Lease
from kvledger.core.device_pools import DevicePools
from kvledger.core.errors import InvalidArgument
from kvledger.core.pools import PoolChanges
from kvledger.tools.bench.device import DeviceReport, bench_device
from kvledger.tools.bench.device_rounds import TO_DEVICE
from kvledger.tools.bench.device_steps import Seen, counted
from kvledger.tools.cli import main

SMALL = ("--rounds", "8", "--seed", "3")


def small(**asked: Any) -> DeviceReport:
    return bench_device(**{"rounds": 8, "seed": 3, "device": "cpu", **asked})


@dataclass
class Event:
    name: str
    device_type: DeviceType


def test_a_prefix_is_one_copy_and_a_commit_one_update_where_it_moves_pages_and_none_where_it_does_not() -> (
    None
):
    report = small()
    steps = {figure.step: figure for figure in report.steps}
    assert report.deviations == 0
    assert report.prefixes == steps[TO_DEVICE].calls == steps[TO_DEVICE].copies > 0
    assert report.copies_per_prefix == 1.0
    assert report.updates_per_changing_commit == 1.0
    assert report.updates_per_other_commit == 0.0
    assert report.changing_commits == sum(figure.updates for figure in report.steps)
    assert sum(figure.copies for figure in report.steps) == report.prefixes
    assert sum(figure.commits for figure in report.steps) == report.changing_commits + report.other_commits
    # Slots are mapped when they are reserved, and locks move none; what is recovered under a lock does.
    for step in ("extend", "evict", "recover"):
        assert steps[step].changing == steps[step].commits == steps[step].updates > 0, step
    for step in ("open", "acquire", "release SWA", "release"):
        assert steps[step].commits > 0 == steps[step].updates == steps[step].changing, step
    # The second of two requests of one prompt gives its pages back when it publishes; others move none.
    assert 0 < steps["commit"].changing < steps["commit"].commits
    assert report.recoveries > 0


def test_the_same_seed_makes_the_same_steps() -> None:
    first, again, other = (
        [(figure.step, figure.calls, figure.changing) for figure in small(seed=seed, rounds=12).steps]
        for seed in (3, 3, 4)
    )
    assert first == again != other


def test_updates_page_by_page_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = DevicePools.commit

    def page_by_page(pool: DevicePools, changes: PoolChanges) -> None:
        whole(pool, PoolChanges(changes.freed_full, changes.freed_swa, *2 * [changes.freed_full[:0]]))
        for full, swa in zip(changes.mapped_full, changes.mapped_swa, strict=True):
            one = PoolChanges(changes.freed_full[:0], changes.freed_swa[:0], full[None], swa[None])
            whole(pool, one)

    monkeypatch.setattr(DevicePools, "commit", page_by_page)
    report = small()
    assert report.updates_per_changing_commit > 2
    assert report.updates_per_other_commit == 0.0
    assert 0 < report.deviations <= report.changing_commits


def test_an_update_by_a_commit_that_changes_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = HybridCache.release

    def writes(cache: HybridCache, lease: Lease) -> None:
        whole(cache, lease)
        cache.pool._update_on_host(cache.pool._mirror_on_host, [])

    monkeypatch.setattr(HybridCache, "release", writes)
    report = small()
    released = next(figure for figure in report.steps if figure.step == "release")
    assert released.updates == released.commits == report.deviations > 0 == released.changing
    assert 0 < report.updates_per_other_commit < 1
    assert report.updates_per_changing_commit == 1.0


def test_copies_piece_by_piece_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = DevicePools.to_device

    def in_pages(pool: DevicePools, values: Any) -> torch.Tensor:
        return torch.cat([whole(pool, values[at : at + 16]) for at in range(0, len(values), 16)])

    monkeypatch.setattr(DevicePools, "to_device", in_pages)
    report = small()
    assert report.copies_per_prefix >= 4
    assert report.deviations == report.prefixes
    assert report.updates_per_changing_commit == 1.0


def test_a_profile_of_a_device_is_read_by_its_copies_and_operations_in_place() -> None:
    events = [
        Event("aten::to", DeviceType.CPU),
        Event("cudaMemcpyAsync", DeviceType.CPU),
        Event("Memcpy HtoD (Pageable -> Device)", DeviceType.CUDA),
        Event("Memcpy DtoH (Device -> Pageable)", DeviceType.CUDA),
        Event("aten::index_put_", DeviceType.CPU),
        Event("aten::_index_put_impl_", DeviceType.CPU),
        Event("index_elementwise_kernel", DeviceType.CUDA),
        Event("kvledger::mirror", DeviceType.CPU),
    ]
    assert counted(events, on_device=True) == (1, 1)
    assert counted(events, on_device=False) == (1, 1)
    assert counted(events[2:5], on_device=True) == (1, 1)
    assert counted(events[2:5], on_device=False) == (0, 0)


@pytest.mark.parametrize(
    ("seen", "on_host", "on_device"),
    [
        (Seen(TO_DEVICE, commits=0, changed=False, copies=1, updates=0), True, True),
        (Seen(TO_DEVICE, commits=0, changed=False, copies=0, updates=0), False, False),
        (Seen(TO_DEVICE, commits=0, changed=False, copies=2, updates=0), False, False),
        (Seen("evict", commits=1, changed=True, copies=0, updates=1), True, False),
        (Seen("evict", commits=1, changed=True, copies=1, updates=1), False, True),
        (Seen("evict", commits=1, changed=True, copies=1, updates=2), False, False),
        (Seen("evict", commits=1, changed=True, copies=0, updates=0), False, False),
        (Seen("open", commits=1, changed=False, copies=0, updates=0), True, True),
        (Seen("open", commits=1, changed=False, copies=0, updates=1), False, False),
        (Seen("open", commits=1, changed=False, copies=1, updates=0), False, False),
    ],
)
def test_what_a_step_may_do(seen: Seen, on_host: bool, on_device: bool) -> None:
    assert (seen.as_expected(on_device=False), seen.as_expected(on_device=True)) == (on_host, on_device)


def test_the_command_tells_where_no_device_was(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["bench", "device", *SMALL, "--json"]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    report: Any = json.loads(out)
    assert {"cpu", "python", "versions"} <= report["environment"].keys()
    assert (report["device"], report["device_name"], report["cuda_available"]) == ("cpu", None, False)
    assert (report["copies_are"], report["copies_per_prefix"], report["deviations"]) == ("aten::to", 1.0, 0)
    assert all(figure["p99_us"] >= figure["median_us"] > 0 for figure in report["steps"])
    assert main(["bench", "device", *SMALL]) == 0
    shown = " ".join(capfd.readouterr().out.split())
    assert "no CUDA device was there: these are operations of a processor" in shown
    assert f"copies for each of {report['prefixes']} acquired prefixes: 1;" in shown
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert main(["bench", "device", *SMALL, "--device", "cpu"]) == 0
    assert "a CUDA device is there and was not asked for" in capfd.readouterr().out


def test_without_torch_the_command_is_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "kvledger.tools.bench.device", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(["bench", "device"]) == 2
    sentence = "kvledger: bench device needs torch, which is missing: pip install torch\n"
    assert capsys.readouterr() == ("", sentence)


def test_a_device_that_is_not_there_or_has_no_copies_to_count_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["bench", "device", "--device", "meta"]) == 2
    assert "device 'meta' cannot be used" in capsys.readouterr().err


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_cuda_device_gets_one_copy_for_a_prefix_and_one_update_for_a_commit_that_moves_pages() -> None:
    report = small(device=None)
    assert report.device == "cuda"
    assert report.device_name
    assert (report.copies_per_prefix, report.updates_per_changing_commit) == (1.0, 1.0)
    assert (report.updates_per_other_commit, report.deviations) == (0.0, 0)
    # The pages of an update go to the device in one copy too.
    assert sum(figure.copies for figure in report.steps) == report.prefixes + report.changing_commits


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_profiler_that_does_not_see_the_copies_of_a_device_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kvledger.tools.bench.device_steps.COPY_TO_DEVICE", "unseen")
    with pytest.raises(InvalidArgument, match="counts 0 copies"):
        small(device="cuda")
