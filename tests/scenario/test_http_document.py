"""docs/http.md tells of every address, setting and metric that there is."""

import re
from pathlib import Path

import pytest

from kvledger.api import ApiSettings, Inspector
from kvledger.journal import Journal
from tests.support.inspected import DEADLINE_SECONDS, ask
from tests.support.private_tokens import live_privately

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "http.md").read_text(encoding="utf-8")
PAGE = (ROOT / "api" / "static" / "index.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], str]:
    """Paths of the service, and what its metrics say over a live recorder."""
    path = tmp_path_factory.mktemp("document") / "run.db"
    with Journal.open(path) as store, store.record() as recorder:
        live_privately(recorder)
        recorder.flush()
        with Inspector.attach(recorder) as inspector:
            timeline = inspector.library.opened(recorder.journal_id).timeline
            timeline.wait_beyond(int(recorder.durable_seq) - 1, DEADLINE_SECONDS)
            assert timeline.wait_loaded(DEADLINE_SECONDS)
            paths = list(ask(inspector, "/openapi.json").json["paths"])
            return paths, ask(inspector, "/metrics").body.decode()


def test_every_address_is_in_the_document(scraped: tuple[list[str], str]) -> None:
    for path in scraped[0]:
        assert f"`{path.replace('/v1/journals/{journal}', 'J')}`" in DOCUMENT or f"`{path}`" in DOCUMENT, path


def test_the_page_sends_nobody_to_an_address_that_is_not_there(scraped: tuple[list[str], str]) -> None:
    (notice,) = re.findall(r"<noscript>.*?</noscript>", PAGE)
    named = re.findall(r"(?<!<)/[a-z][\w./]*", notice)
    assert named
    for address in named:
        assert any(f"{path}/".startswith(f"{address}/") for path in [*scraped[0], "/openapi.json"]), address


def test_every_setting_is_in_the_document_with_its_default() -> None:
    for name, field in ApiSettings.model_fields.items():
        variable = f"`KVLEDGER_{name.upper()}`"
        (line,) = [line for line in DOCUMENT.splitlines() if line.startswith("|") and variable in line]
        if (type(field.default) is int and field.default < 1_024) or name in ("host", "port"):
            assert str(field.default) in line, name


def test_every_metric_is_in_the_document_and_no_other(scraped: tuple[list[str], str]) -> None:
    families = set(re.findall(r"^# TYPE (kvledger_\w+)", scraped[1], re.MULTILINE))
    assert set(re.findall(r"`(kvledger_\w+)`", DOCUMENT)) == families


def test_the_example_of_the_document_runs(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)
    with Journal.open(tmp_path / "run.db") as store, store.record() as recorder:
        names: dict[str, object] = {"recorder": recorder}
        exec(example, names)
        inspector = names["inspector"]
        assert isinstance(inspector, Inspector)
        with inspector:
            assert inspector.url.startswith("http://127.0.0.1:")
