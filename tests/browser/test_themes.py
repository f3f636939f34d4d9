"""Dark and light: both are there, both can be read, and the choice is kept."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Open
from tests.browser.recorded import Recovery

CONTRAST = """
() => {
  const channels = (colour) => {
    const pen = document.createElement("canvas").getContext("2d");
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 1, 1);
    return [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3).map((value) => {
      const part = value / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
  };
  const weights = [0.2126, 0.7152, 0.0722];
  const light = (colour) => channels(colour).reduce((sum, part, at) => sum + part * weights[at], 0);
  const probe = document.body.appendChild(document.createElement("span"));
  const value = (name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  };
  const pairs = [
    ["text", "page"], ["text", "surface"], ["text", "raised"], ["quiet", "surface"], ["quiet", "sunken"],
    ["text", "sunken"], ["accent", "surface"], ["accent", "accent-soft"], ["text", "accent-soft"],
    ["on-accent", "accent"], ["text", "warn-soft"], ["text", "bad-soft"], ["good", "good-soft"],
    ["bad", "bad-soft"], ["warn", "warn-soft"], ["good", "surface"], ["bad", "surface"], ["warn", "surface"],
    ["on-both", "state-both"], ["on-full", "state-full"], ["on-evictable", "state-evictable"],
    ["on-idle", "state-idle"], ["on-hollow", "state-hollow"], ["on-request", "place-request"],
    ["on-caller", "place-caller"], ["mixed", "surface"],
  ];
  const ratios = pairs.map(([ink, ground]) => {
    const [one, other] = [light(value(ink)), light(value(ground))].sort((a, b) => b - a);
    return [`${ink} on ${ground}`, (one + 0.05) / (other + 0.05)];
  });
  probe.remove();
  return ratios;
}
"""

AA = 4.5
"""WCAG 2.2, 1.4.3: contrast of text of ordinary size."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_both_themes(open_page: Open, service: str, story: Recovery, scheme: str) -> None:
    page = open_page(service, color_scheme=scheme).open(
        journal=story.journal, seq=story.after, node=story.node
    )
    page.has_text("#node-swa-pages", story.swa_pages)
    low = [(name, ratio) for name, ratio in page.page.evaluate(CONTRAST) if ratio < AA]
    assert low == []
    page.picture(f"theme-{scheme}")
    page.press("2")
    expect(page.page.locator("#pool-full")).to_be_visible()
    page.has_text("#pane-pools", "evictable")
    page.picture(f"theme-{scheme}-pools")


def test_the_theme_follows_the_system_until_one_is_chosen(
    open_page: Open, service: str, story: Recovery
) -> None:
    page = open_page(service, color_scheme="dark").open(journal=story.journal)
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = page.page.evaluate(ground)
    page.page.emulate_media(color_scheme="light")
    light = page.page.evaluate(ground)
    assert light != dark
    page.page.locator("#theme-toggle").click()
    page.has_text("#theme-toggle", "light")
    page.page.emulate_media(color_scheme="dark")
    assert page.page.evaluate(ground) == light
    page.press("c")
    page.has_text("#theme-toggle", "dark")
    assert page.page.evaluate(ground) == dark
    page.page.reload()
    page.has_text("#theme-toggle", "dark")


def test_the_state_of_a_node_is_told_by_more_than_its_colour(
    open_page: Open, service: str, story: Recovery
) -> None:
    page = open_page(service).open(journal=story.journal, seq=story.after)
    letters = page.page.evaluate(
        """async () => {
          const { lettersOf } = await import("/static/js/node-state.js");
          const node = {
            full_lock: 0, swa_lock: 0, tombstone: false, mixed: false,
            evictable_full: true, evictable_swa: true,
          };
          return [
            node,
            { ...node, full_lock: 1 },
            { ...node, full_lock: 1, swa_lock: 1 },
            { ...node, tombstone: true },
            { ...node, full_lock: 1, tombstone: true },
            { ...node, full_lock: 1, mixed: true },
          ].map(lettersOf);
        }"""
    )
    assert letters == ["E", "F", "S", "ET", "FT", "FM"]
