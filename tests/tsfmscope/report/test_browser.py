"""The page in headless Chromium: it draws without a request, passes axe, works by keyboard, on a phone and in print."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.browser import Browser, needs_chromium, start_chromium
from tests.tsfmscope.report.conftest import HOSTILE
from tsfmscope.functions.inspect import COLUMNS
from tsfmscope.report import single_model
from tsfmscope.report.page import page as report
from tsfmscope.report.page import run_page
from tsfmscope.report.single_model import PANELS
from tsfmscope.report.tables import ReportTables

pytestmark = [pytest.mark.slow, needs_chromium]
LOCK = {"data/geometry": "0" * 32 + ".dir", "data/external_inputs.json": "1" * 32}
# What stands inside a plot is one image for a screen reader, with a name.
AXE = {"exclude": [[".plot > *"]]}
RULES = {"rules": {"target-size": {"enabled": True}}, "resultTypes": ["violations"]}
INK = "() => getComputedStyle(document.querySelector('#plot-nmse_against_isotropy .role-legend-label text')).fill"
OPEN_ALL = "for (const part of document.querySelectorAll('details')) part.open = true"
CLOSE_ALL = OPEN_ALL.replace("true", "false")
OPEN_SECTIONS = OPEN_ALL.replace("details", "details.fold")


@pytest.fixture(scope="module")
def open_page() -> Iterator[Callable[[], Browser]]:
    with start_chromium() as opener:
        yield opener


@pytest.fixture
def browser(open_page: Callable[[], Browser]) -> Browser:
    """A page of its own."""
    return open_page()


@pytest.fixture(scope="module")
def opened(open_page: Callable[[], Browser], tables: ReportTables, tmp_path_factory: pytest.TempPathFactory) -> Browser:
    """The page with a lock, all sections open."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(report.render(tables, LOCK), encoding="utf-8")
    browser = open_page()
    browser.open(path)
    browser.page.evaluate(OPEN_SECTIONS)
    assert browser.page.locator(".plot:has(svg)").count() == 20
    return browser


def find_violations(browser: Browser) -> list[str]:
    found = Axe().run(browser.page, context=AXE, options=RULES).response["violations"]
    return [f"{rule['id']}: {node['html']}" for rule in found for node in rule["nodes"]]


def test_everything_is_drawn_without_an_error_or_a_request(opened: Browser) -> None:
    assert opened.complaints == []
    assert len(opened.fetched()) == 1 and opened.fetched()[0].startswith("file:")


@pytest.mark.parametrize(("scheme", "width"), [("light", 1100), ("dark", 390)])
def test_axe_finds_nothing_and_nothing_is_wider_than_the_screen(opened: Browser, scheme: str, width: int) -> None:
    page = opened.page
    page.emulate_media(color_scheme=scheme)
    page.evaluate(OPEN_ALL)
    with opened.screen(width):
        assert find_violations(opened) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.evaluate(f"{CLOSE_ALL}; {OPEN_SECTIONS}")
    page.emulate_media(color_scheme="light")


def test_axe_finds_planted_faults(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "faulty.html"
    path.write_text(
        "<html lang=en><title>t</title><main><h1>h</h1><p style='color:#aaa'>faint</p><div role=img></div></main>"
    )
    browser.open(path)
    assert {line.partition(":")[0] for line in find_violations(browser)} >= {"color-contrast", "role-img-alt"}


def test_a_link_opens_the_section_that_it_leads_to_and_printing_opens_all(opened: Browser) -> None:
    page = opened.page
    page.evaluate(CLOSE_ALL)
    fold = page.locator("#study-ranks details.fold, #correlation details.fold")
    is_open = "() => document.querySelector('#correlation > details').open"
    assert fold.count() >= 1 and not page.evaluate(is_open)
    for _ in range(2):  # the second click leaves the hash as it is
        page.locator("nav a[href='#correlation']").evaluate("link => link.click()")
        page.wait_for_function(is_open)
        page.locator("#correlation > details > summary").evaluate("summary => summary.click()")
        assert not page.evaluate(is_open)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details.fold:not([open])").count() == 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert not page.evaluate(is_open)
    page.evaluate(OPEN_SECTIONS)


def test_how_it_ran_passes_axe_on_a_phone(browser: Browser, tables: ReportTables, tmp_path: Path) -> None:
    (tmp_path / "run.html").write_text(run_page.render(tables, LOCK), encoding="utf-8")
    browser.open(tmp_path / "run.html")
    with browser.screen(390):
        assert find_violations(browser) == []
        assert browser.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert browser.complaints == [] and len(browser.fetched()) == 1


def test_figures_follow_light_and_dark(opened: Browser) -> None:
    inks = []
    for scheme in ("light", "dark", "light"):
        opened.page.emulate_media(color_scheme=scheme)
        opened.settle()
        inks.append(opened.page.evaluate(INK))
    assert inks[0] == inks[2] != inks[1]


def test_the_keyboard_reaches_everything_in_order_sorts_tables_and_opens_sql(opened: Browser) -> None:
    page = opened.page
    page.evaluate("scrollTo({top: 0, behavior: 'instant'}); document.activeElement.blur()")
    stops = page.evaluate(
        "[...document.querySelectorAll('a[href], button, input, summary, [tabindex=\"0\"]')]"
        ".filter(e => e.checkVisibility()).slice(0, 32).map(e => e.tagName)"
    )
    page.locator(".skip").evaluate("link => link.focus({focusVisible: true})")
    for tag in stops:
        style = "() => { const e = document.activeElement; return [e.tagName, getComputedStyle(e).outlineStyle]; }"
        focused, outline = page.evaluate(style)
        assert (focused, outline) == (tag, "solid")
        page.keyboard.press("Tab")
    head = page.locator("#models-table th").nth(1)
    cells = "() => [...document.querySelectorAll('#models-table tbody tr')].map(r => Number(r.cells[1].dataset.value))"
    for key, order in (("Enter", "ascending"), (" ", "descending")):
        head.locator("button").press(key)
        assert head.get_attribute("aria-sort") == order
        assert page.evaluate(cells) == sorted(page.evaluate(cells), reverse=order == "descending")
    page.locator("#skill-table th button").nth(0).focus()
    page.locator("#source-skill summary").press("Enter")
    page.locator("#source-skill pre").wait_for(state="visible")
    assert "from skill" in page.locator("#source-skill pre").inner_text()
    page.locator("#source-skill summary").press("Enter")


def test_missing_values_sort_last_and_a_filter_counts_the_rows_it_leaves(opened: Browser) -> None:
    page = opened.page
    page.locator("#correlation-table th button").nth(4).evaluate("button => button.click()")
    assert page.locator("#correlation-table tbody tr:last-child td").nth(4).text_content() == "–"
    box, rows = page.locator("[data-filter=printed-table]"), page.locator("#printed-table tbody tr")
    matching = sum("lag-llama" in text for text in rows.all_text_contents())
    for words, count in (("LAG-LLAMA", matching), ("no such thing", 0)):
        box.fill(words)
        assert page.locator("#printed-table tbody tr:not([hidden])").count() == count
        assert page.locator(".filter:has([data-filter=printed-table]) output").text_content() == f"{count} of 163 rows"
    box.fill("")


def test_the_csv_link_holds_every_row(opened: Browser, tables: ReportTables) -> None:
    text = opened.page.evaluate("atob(document.querySelector('#skill .csv').href.split(',')[1])")
    assert text == tables.skill.frame.to_csv(index=False)


def test_print_is_dark_on_white_shows_every_figure_and_cuts_no_table_off(opened: Browser) -> None:
    page = opened.page
    page.emulate_media(media="print", color_scheme="dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    with opened.screen(718, 1047):  # A4 less a centimetre a side
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert page.evaluate(INK) == "rgb(29, 33, 38)"
        shown = "selector => [...document.querySelectorAll(selector)].filter(e => e.checkVisibility()).length"
        assert page.evaluate(shown, "nav, .filter, .source, .skip") == 0
        assert page.evaluate(shown, "figcaption") == page.locator("figcaption").count() > 10
        assert page.evaluate("[...document.querySelectorAll('.plot svg')].every(e => e.clientWidth <= 718)")
        wide = "[...document.querySelectorAll('table')].filter(t => t.getBoundingClientRect().right > innerWidth + 1)"
        assert page.evaluate(f"{wide}.map(t => t.id)") == []
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.emulate_media(media="screen", color_scheme="light")
    assert len(page.pdf(print_background=True)) > 50_000


def test_a_hostile_name_runs_nothing_and_is_read_as_it_stands(
    browser: Browser, hostile: ReportTables, tmp_path: Path
) -> None:
    harmless = "window.hacked === undefined && document.querySelectorAll('img, b').length === 0"
    path = tmp_path / "hostile.html"
    path.write_text(run_page.render(hostile), encoding="utf-8")
    browser.open(path)
    legends = browser.page.locator("#plot-training .role-legend-label text").all_text_contents()
    assert legends and all(text.endswith(HOSTILE) for text in legends)
    assert browser.page.evaluate(harmless)
    path.write_text(report.render(hostile), encoding="utf-8")
    browser.open(path)
    browser.page.evaluate(OPEN_SECTIONS)
    browser.page.locator("#plot-nmse_against_isotropy .mark-symbol.role-mark path").first.dispatch_event(
        "pointerover", {"bubbles": True}
    )
    assert browser.page.locator(".tip").text_content().count(HOSTILE) == 2
    assert browser.page.evaluate(harmless)
    assert browser.complaints == [] and set(browser.fetched()) == {path.as_uri()}


def test_the_page_of_one_model_draws_under_a_policy_that_allows_no_other_script(
    browser: Browser, tmp_path: Path
) -> None:
    measures = [column for _, _, columns in PANELS for column in columns]
    rows = pd.DataFrame([{"stack": HOSTILE, "layer": layer, "normed": False} for layer in range(3)])
    rows = rows.assign(share=0.8, epsilon=0.01, **dict.fromkeys(measures, 0.5))
    text = single_model.render_page(HOSTILE, rows, COLUMNS)
    path = tmp_path / "model.html"
    path.write_text(text, encoding="utf-8")
    browser.open(path)
    browser.page.locator(".role-mark [aria-label]").first.dispatch_event("pointerover", {"bubbles": True})
    assert browser.page.locator(".tip").text_content().startswith(HOSTILE)
    assert browser.page.locator("svg").count() == len(PANELS)
    assert browser.complaints == [] and len(browser.fetched()) == 1
    path.write_text(text.replace("</body>", "<script>window.hacked = 1</script></body>"), encoding="utf-8")
    browser.open(path)
    assert browser.page.evaluate("window.hacked === undefined")
    assert any("Content Security Policy" in text for text in browser.complaints)
