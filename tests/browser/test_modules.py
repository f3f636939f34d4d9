"""Rules of single modules of the page, as truth tables, in the browser that runs them; and of their text."""

from pathlib import Path

import pytest

from tests.browser.conftest import Open
from tests.browser.recorded import Recovery

STATIC = Path(__file__).resolve().parents[2] / "api" / "static"
SCRIPTS = sorted(STATIC.glob("js/*.js"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_no_script_reads_data_as_markup_or_code(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    for forbidden in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
    ):
        assert forbidden not in text


def test_nothing_of_the_page_names_another_place() -> None:
    for path in [STATIC / "index.html", *STATIC.glob("css/*.css"), *SCRIPTS]:
        text = path.read_text(encoding="utf-8")
        assert "http:" not in text
        assert "https:" not in text
        assert "style=" not in text
        assert "onclick=" not in text


def test_numbers_are_written_as_a_person_reads_them(open_page: Open, service: str, story: Recovery) -> None:
    page = open_page(service).open(journal=story.journal)
    told = page.page.evaluate(
        """async () => {
          const f = await import("/static/js/format.js");
          return {
            counts: [f.count(1234567), f.counted(1, "a"), f.counted(2, "a"), f.counted(0, "leaf", "leaves")],
            spans: [f.span(0, 1200), f.run([5, 1]), f.run([5, 4])],
            typed: ["12", " 1,200 ", "1 200", "", "-1", "1.5", "1e3", "99999999999999999"].map(f.typedNumber),
            steps: [0.3, 1, 3, 7, 12, 180].map(f.niceStep),
            times: [f.time(1795981690994945), f.time(null), f.clock(1795981690994945)],
          };
        }"""
    )
    assert told == {
        "counts": ["1,234,567", "1 a", "2 as", "0 leaves"],
        "spans": ["[0, 1,200)", "5", "5–8"],  # noqa: RUF001
        "typed": [12, 1200, 1200, None, None, None, None, None],
        "steps": [1, 1, 5, 10, 20, 200],
        "times": ["2026-11-29 19:48:10.994 UTC", "", "19:48:10.994"],
    }


def test_zooming_keeps_the_token_under_the_pointer(open_page: Open, service: str, story: Recovery) -> None:
    page = open_page(service).open(journal=story.journal)
    told = page.page.evaluate(
        """async () => {
          const { Layout } = await import("/static/js/tree-layout.js");
          const layout = new Layout();
          Object.assign(layout, { width: 1008, height: 400, endMax: 4000, rowsTotal: 50, rowHeight: 10 });
          const before = layout.tokenAt(500);
          layout.zoomAt(4, 500);
          const after = layout.tokenAt(500);
          const node = { start: 100, end: 300, row: 3, rows: 2 };
          const at = layout.rect(node);
          layout.fit();
          const whole = layout.rect({ start: 0, end: 4000, row: 0, rows: 50 });
          layout.zoomAt(0.01, 10);
          return {
            moved: Math.abs(before - after) < 1e-6,
            zoomed: at.width,
            whole: [whole.x, whole.width, whole.height],
            least: [layout.zoom, layout.left],
            hit: layout.hit([node], layout.x(200), layout.y(4) + 1)?.start,
            beside: layout.hit([node], layout.x(300), layout.y(4) + 1),
            rows: layout.visibleRows(),
          };
        }"""
    )
    assert told == {
        "moved": True,
        "zoomed": 199,
        "whole": [0, 999, 499],
        "least": [1, 0],
        "hit": 100,
        "beside": None,
        "rows": {"first": 0, "rows": 39},
    }


@pytest.mark.parametrize(
    ("typed", "pick"),
    [
        ("14", {"type": "node", "id": 14}),
        (" 1,400 ", {"type": "node", "id": 1400}),
        ("node 14", {"type": "node", "id": 14}),
        ("Node:14", {"type": "node", "id": 14}),
        ("node x", None),
        ("full 12", {"type": "slot", "pool": "full", "slot": 12}),
        ("swa:8", {"type": "slot", "pool": "swa", "slot": 8}),
        ("SWA # 8", {"type": "slot", "pool": "swa", "slot": 8}),
        ("slot 12", {"type": "slot", "pool": "full", "slot": 12}),
        ("slot swa 12", {"type": "slot", "pool": "swa", "slot": 12}),
        ("swa -1", None),
        ("r00160", {"type": "request", "id": "r00160"}),
        ("request 14", {"type": "request", "id": "14"}),
        ("tenant/a b:c", {"type": "request", "id": "tenant/a b:c"}),
        ("fuller", {"type": "request", "id": "fuller"}),
        ("", None),
        ("  ", None),
    ],
)
def test_what_is_typed_names_a_node_a_slot_or_a_request(
    open_page: Open, service: str, story: Recovery, typed: str, pick: dict[str, object] | None
) -> None:
    page = open_page(service).open(journal=story.journal)
    told = page.page.evaluate(
        """async (text) => (await import("/static/js/go-to.js")).typedPick(text)""", typed
    )
    assert told == pick


@pytest.mark.parametrize(
    ("fragment", "said"),
    [
        ("#journal=2&seq=15&node=3", {"journal": 2, "asked": 15, "pick": {"type": "node", "id": 3}}),
        ("#slot=full:12", {"pick": {"type": "slot", "pool": "full", "slot": 12}}),
        ("#slot=other:12", {"pick": None}),
        ("#request=a%2Fb", {"pick": {"type": "request", "id": "a/b"}}),
        ("#seq=-1&node=x&tab=nothing", {"asked": None, "pick": None, "tab": "events"}),
        ("#seq=12345678901234567890", {"asked": None}),
        ("", {"journal": None, "asked": None, "namespace": None}),
    ],
)
def test_a_fragment_says_what_is_looked_at(
    open_page: Open, service: str, story: Recovery, fragment: str, said: dict[str, object]
) -> None:
    page = open_page(service).open(journal=story.journal)
    told = page.page.evaluate(
        """async (text) => (await import("/static/js/hash.js")).readHash(text)""", fragment or "#"
    )
    assert {name: told[name] for name in said} == said
