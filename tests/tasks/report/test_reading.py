"""The page in headless Chromium as people read it: contrast, keyboard, names for a screen reader, a phone, print."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tasks.report.chromium import LACKING, MISSING, Browser, started
from tsfmscope.tasks.report.page import page as report
from tsfmscope.tasks.report.page import studies
from tsfmscope.tasks.report.quantize_png import quantize
from tsfmscope.tasks.report.render.mpl_render import render
from tsfmscope.tasks.report.tables import ReportTables

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(MISSING), reason=LACKING)]
LOCK = {"data/geometry": "0" * 32 + ".dir", "data/external_inputs.json": "1" * 32}
# Every text's contrast to what is painted behind it, as WCAG 2 defines it, where it is below the least: [ratio, text].
CONTRAST = """
const parse = (c) => { const m = c.match(/[\\d.]+/g).map(Number); return [m[0], m[1], m[2], m.length > 3 ? m[3] : 1]; };
const channel = (v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
const over = (a, b) => [0, 1, 2].map((i) => a[i] * a[3] + b[i] * (1 - a[3]));
const behind = (e) => {
  const layers = [];
  for (; e; e = e.parentElement) layers.push(parse(getComputedStyle(e).backgroundColor));
  return layers.reverse().reduce((below, one) => over(one, below), [255, 255, 255]);
};
const found = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
let seen = 0;
while (walker.nextNode()) {
  const e = walker.currentNode.parentElement, text = walker.currentNode.textContent.trim();
  if (!text || e.closest("script, style, noscript, .skip")) continue;
  if (!e.checkVisibility({ checkVisibilityCSS: true })) continue;
  const style = getComputedStyle(e), svg = e.closest("svg");
  const ink = parse(svg ? style.fill : style.color);
  for (let up = e; up; up = up.parentElement) ink[3] *= Number(getComputedStyle(up).opacity);
  if (svg) ink[3] *= Number(style.fillOpacity);
  const below = behind(svg ? svg.parentElement : e);
  const [a, b] = [light(over(ink, below)), light(below)].sort((x, y) => y - x);
  seen += 1;
  if ((a + 0.05) / (b + 0.05) < LEAST) found.push([((a + 0.05) / (b + 0.05)).toFixed(2), text.slice(0, 40)]);
}
return [seen, found];
"""
FOCUS = """
const e = document.activeElement, s = getComputedStyle(e);
return [e.tagName, (e.getAttribute('aria-label') || e.textContent).trim(), s.outlineStyle, parseFloat(s.outlineWidth)];
"""


@pytest.fixture(scope="module")
def page(tables: ReportTables, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """The page with a still picture and a lock, every figure drawn that was on the screen once."""
    one = next(study for study in tables.studies if study.plot == "domains")
    drawn = [(each.title, each.figure) for each in studies.draw_figures(one, report.order_models(tables))]
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(report.render(tables, {one.name: quantize(render(drawn)["png"])}, LOCK), encoding="utf-8")
    with started() as browser:
        _open(browser, path)
        yield browser


def _open(browser: Browser, path: Path) -> None:
    browser.open(path)
    for place in range(browser.js("return document.querySelectorAll('.plot').length")):
        browser.show(place)


def _press(page: Browser, key: str, code: int, text: str = "") -> None:
    for kind in ("keyDown", "keyUp"):
        event = {"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code}
        page.cdp("Input.dispatchKeyEvent", event | ({"text": text} if text and kind == "keyDown" else {}))


def _focus(page: Browser, selector: str) -> None:
    page.js(f"document.querySelector('{selector}').focus({{focusVisible: true}})")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out_from_what_is_behind_it(page: Browser, scheme: str) -> None:
    page.scheme(scheme)
    page.js("for (const one of document.querySelectorAll('details')) one.open = true")
    try:
        seen, faint = page.js(CONTRAST.replace("LEAST", "4.5"))
        assert seen > 500
        assert faint == []
        assert page.js(CONTRAST.replace("LEAST", "22"))[1], "the most that there is is 21: all would be found"
    finally:
        page.js("for (const one of document.querySelectorAll('details')) one.open = false")
        page.scheme("light")


def test_tab_goes_through_the_page_in_its_order_and_shows_where_it_is(page: Browser) -> None:
    page.js("scrollTo({top: 0, behavior: 'instant'}); document.activeElement.blur()")
    stops = page.js(
        "return [...document.querySelectorAll('a[href], button, input, summary, [tabindex=\"0\"]')]"
        ".filter(e => e.checkVisibility()).slice(0, 40).map(e => e.tagName)"
    )
    page.js("document.querySelector('.skip').focus({focusVisible: true})")
    reached = []
    for _ in stops:
        reached.append(page.js(FOCUS))
        _press(page, "Tab", 9)
    assert [tag for tag, *_ in reached] == stops
    assert reached[0][1] == "Skip to the summary"
    assert {"A", "SUMMARY", "DIV", "BUTTON"} <= set(stops)
    for tag, name, style, width in reached:
        assert style != "none" and width >= 2, (tag, name)


def test_keys_sort_a_table_and_open_the_sql(page: Browser) -> None:
    head = "document.querySelector('#skill-table th')"
    _focus(page, "#skill-table th button")
    _press(page, "Enter", 13, "\r")
    assert page.js(f"return {head}.getAttribute('aria-sort')") == "ascending"
    _press(page, " ", 32, " ")
    assert page.js(f"return {head}.getAttribute('aria-sort')") == "descending"
    _focus(page, "#source-skill summary")
    _press(page, "Enter", 13, "\r")
    assert page.js("return document.querySelector('#source-skill pre').checkVisibility()")
    assert "from skill" in page.js("return document.querySelector('#source-skill pre').textContent")
    _press(page, "Enter", 13, "\r")


def test_a_screen_reader_is_told_what_everything_is(page: Browser) -> None:
    nodes = [node for node in page.cdp("Accessibility.getFullAXTree", {})["nodes"] if not node["ignored"]]
    named: dict[str, list[str]] = {}
    for node in nodes:
        named.setdefault(node["role"]["value"], []).append(node.get("name", {}).get("value", "").strip())
    for role in ("button", "link", "searchbox", "image", "region", "heading", "navigation", "figure"):
        assert named[role], role
        assert all(named[role]), (role, named[role])
    filters = named["searchbox"]
    assert len(set(filters)) == len(filters)  # each says which table it filters
    images = [name for name in named["image"] if "plot" in name.lower() or "chart" in name.lower()]
    assert len(images) >= 10 and all(len(name) > 40 for name in images)
    heads = page.js("return [...document.querySelectorAll('h1, h2, h3')].map(h => Number(h.tagName[1]))")
    assert heads[0] == 1 and all(after - before <= 1 for before, after in itertools.pairwise(heads))


def test_a_filter_says_how_many_rows_it_leaves(page: Browser) -> None:
    said = "const i = document.querySelector('[data-filter=skipped-table]'); i.value = {!r};"
    said += "i.dispatchEvent(new Event('input')); return i.closest('.filter').querySelector('output').textContent"
    total = page.js("return document.querySelectorAll('#skipped-table tbody tr').length")
    constant = "[...document.querySelectorAll('#skipped-table tbody tr')].filter(r => /constant/.test(r.textContent))"
    assert page.js(said.format("constant")) == f"{page.js(f'return {constant}.length')} of {total} rows"
    assert page.js(said.format("no such thing")) == f"0 of {total} rows"
    assert page.js(said.format("")) == ""


def test_on_a_phone_what_is_tapped_is_no_smaller_than_24_pixels_or_stands_apart(page: Browser) -> None:
    with page.screen(390, 844):
        small = page.js(
            "return [...document.querySelectorAll('nav a, th button, .views button, .filter input')]"
            ".filter(e => e.checkVisibility()).map(e => [e.getBoundingClientRect().height, e.textContent])"
            ".filter(([height]) => height < 24)"
        )
        assert small == []
        hidden = page.js(
            "return [...document.querySelectorAll('table')].filter(t => t.scrollWidth > t.parentElement.clientWidth"
            " && getComputedStyle(t.parentElement).overflowX !== 'auto').map(t => t.id)"
        )
        assert hidden == []


@pytest.fixture(scope="class")
def printed(page: Browser) -> Iterator[Browser]:
    """The page as the printer is given it, by a system that asks for dark: A4 less a centimetre a side."""
    page.scheme("dark")
    page.js("dispatchEvent(new Event('beforeprint'))")
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    page.cdp("Emulation.setEmulatedMedia", {"media": "print", "features": dark})
    try:
        with page.screen(718, 1047):
            yield page
    finally:
        page.js("dispatchEvent(new Event('afterprint'))")
        page.cdp("Emulation.setEmulatedMedia", {"media": ""})
        page.scheme("light")


class TestPrint:
    def test_print_is_dark_on_white_without_what_only_a_screen_can_use(self, printed: Browser) -> None:
        seen, faint = printed.js(CONTRAST.replace("LEAST", "4.5"))
        assert seen > 300
        assert faint == []
        assert printed.js("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        controls = "nav, .filter, .views, .source, .skip"
        assert (
            printed.js(f"return [...document.querySelectorAll('{controls}')].filter(e => e.checkVisibility()).length")
            == 0
        )
        ink = printed.js("return document.querySelector('#plot-training').layout.font.color")
        assert ink == "#1d2126"

    def test_print_shows_every_figure_whole_with_its_caption(self, printed: Browser) -> None:
        still = printed.js(
            "const s = document.querySelector('.static'), r = s.getBoundingClientRect();"
            "return [s.checkVisibility(), r.width, r.height, getComputedStyle(s).breakInside]"
        )
        assert still[0] and 300 < still[1] <= 718 and still[2] < 1047 and still[3] == "avoid"
        captions = "return [...document.querySelectorAll('figcaption')].every(c => c.checkVisibility())"
        assert printed.js(captions)
        whole = (
            "return [...document.querySelectorAll('figure')].every(f => getComputedStyle(f).breakInside === 'avoid')"
        )
        assert printed.js(whole)
        assert printed.js("return !document.querySelector('.has-static .plot').checkVisibility()")
        live = "return [...document.querySelectorAll('figure')].filter(f => !f.closest('.has-static'))"
        live += ".filter(f => !f.querySelector('.plot .main-svg, .plot canvas')).map(f => f.querySelector('.plot').id)"
        assert printed.js(live) == []

    def test_print_cuts_no_table_off(self, printed: Browser) -> None:
        wide = printed.js(
            "return [...document.querySelectorAll('table')].map(t => [t.id, t.getBoundingClientRect().right])"
            ".filter(([, right]) => right > innerWidth + 1)"
        )
        assert wide == []


def test_the_printer_gets_pages(page: Browser) -> None:
    pdf = base64.b64decode(page.cdp("Page.printToPDF", {"printBackground": True})["data"])
    assert pdf.startswith(b"%PDF")
    assert len(pdf) > 50_000
    assert page.js("return document.documentElement.classList.contains('paper')") is False


def test_the_page_opens_soon(page: Browser, capsys: pytest.CaptureFixture[str]) -> None:
    """The bound is for a loaded machine; the figures are printed, and a quiet one is well below two seconds."""
    found: list[dict[str, Any]] = []
    page.cdp("Performance.enable", {})
    url = page.js("return location.href")
    for _ in range(3):
        page.send("POST", f"{page.session}/url", {"url": url})
        metrics = {one["name"]: one["value"] for one in page.cdp("Performance.getMetrics", {})["metrics"]}
        found.append(
            page.js(
                "const [n] = performance.getEntriesByType('navigation');"
                "return {load: n.loadEventEnd / 1e3, mb: n.decodedBodySize / 1e6}"
            )
            | {"cpu": metrics["ThreadTime"]}
        )
    best = min(found, key=lambda one: one["load"])
    with capsys.disabled():
        print(f"\nreport of {best['mb']:.1f} MB: loaded in {best['load']:.2f} s, {best['cpu']:.2f} s of processor time")
    assert best["load"] < 20
    assert not page.js("return [...document.querySelectorAll('.plot')].every(p => p.querySelector('.main-svg'))")
