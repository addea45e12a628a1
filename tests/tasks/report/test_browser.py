"""The page in headless Chromium: no console error, no request, tables sort and filter, hostile names stay text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from tests.tasks.report.chromium import LACKING, MISSING, Browser, started
from tsfmscope.tasks.report.page import single_model_page
from tsfmscope.tasks.report.page.page import render
from tsfmscope.tasks.report.tables import ReportTables

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(MISSING), reason=LACKING)]
HOSTILE = "<img src=x onerror=window.hacked=1></script><b>%{x}"  # what conftest.py adds to every name


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with started() as opened:
        yield opened


@pytest.fixture(scope="module")
def page(browser: Browser, tables: ReportTables, tmp_path_factory: pytest.TempPathFactory) -> Browser:
    return _opened(browser, tables, tmp_path_factory.mktemp("page") / "report.html")


def _opened(browser: Browser, tables: ReportTables, path: Path) -> Browser:
    """The page with every figure drawn that was on the screen once; those in three dimensions go again."""
    path.write_text(render(tables), encoding="utf-8")
    browser.log("performance"), browser.log("browser")
    browser.open(path)
    for place in range(browser.js("return document.querySelectorAll('.plot').length")):
        browser.show(place)
    return browser


def test_the_page_draws_everything_without_an_error_or_a_request(page: Browser) -> None:
    count = page.js("return document.querySelectorAll('.plot').length")
    assert count == 7 + 4 + 1  # and those of the theorems, of advice
    for place in range(count):
        page.show(place)
        assert page.js(f"return document.querySelectorAll('.plot')[{place}].querySelectorAll('.main-svg').length")
    assert page.complaints() == []
    asked = page.requests()
    assert len(asked) == 1
    assert asked[0].startswith("file:")


@pytest.fixture
def own_browser() -> Iterator[Browser]:
    """A browser that may leave the report, which the other tests share."""
    with started() as opened:
        yield opened


def test_the_page_of_one_model_draws_under_a_policy_that_allows_no_other_script(
    own_browser: Browser, tmp_path: Path
) -> None:
    browser = own_browser
    measures = [column for _, _, columns in single_model_page.PANELS for column in columns]
    rows = pd.DataFrame([{"stack": HOSTILE, "layer": layer, "normed": False} for layer in range(3)])
    rows = rows.assign(share=0.8, epsilon=0.01, **dict.fromkeys(measures, 0.5))
    text = single_model_page.render_page(HOSTILE, single_model_page.draw_figures(rows))
    assert "Content-Security-Policy" in text
    browser.log("performance"), browser.log("browser")
    path = tmp_path / "look.html"
    path.write_text(text, encoding="utf-8")
    browser.open(path)
    browser.settle()
    assert browser.js("return document.querySelectorAll('.main-svg').length") >= 2 * len(single_model_page.PANELS)
    assert browser.complaints() == []
    assert len(browser.requests()) == 1
    path.write_text(text.replace("</body>", "<script>window.hacked = 1</script></body>"), encoding="utf-8")
    browser.open(path)
    assert browser.js("return window.hacked === undefined")
    assert any("Content Security Policy" in one for one in browser.complaints())


def test_pictures_in_three_dimensions_give_back_their_canvas_and_keep_their_view(page: Browser) -> None:
    live = "return [...document.querySelectorAll('.plot')].filter(p => p.querySelector('canvas')).length"
    scene = "document.querySelector('#plot-islands-0')"
    place = page.js(f"return [...document.querySelectorAll('.plot')].indexOf({scene})")
    page.show(place)
    assert page.js(live) >= 1
    turned = "{eye: {x: 0.5, y: -1.5, z: 0.25}}"
    page.send(
        "POST",
        f"{page.session}/execute/async",
        {
            "script": f"const done = arguments[0]; Plotly.relayout({scene}, {{'scene.camera': {turned}}})"
            ".then(() => done())",
            "args": [],
        },
    )
    page.js("scrollTo({top: 0, behavior: 'instant'})")
    page.settle()
    assert page.js(live) == 0
    page.show(place)
    assert page.js(f"return {scene}.layout.scene.camera.eye") == {"x": 0.5, "y": -1.5, "z": 0.25}
    assert page.js(f"return {scene}.parentElement.querySelectorAll('.views button').length") == 2
    assert page.complaints() == []


def test_panels_stand_two_in_a_row_on_a_phone(page: Browser) -> None:
    columns = "return new Set([...Object.entries(document.querySelector('#plot-domains-0')._fullLayout)]"
    columns += ".filter(([k]) => /^xaxis/.test(k)).map(([, v]) => v.domain[0])).size"
    assert page.js(columns) == 3
    with page.screen(390, 844):
        assert page.js(columns) == 2
    assert page.js(columns) == 3


def test_tables_sort_numbers_as_numbers_and_the_missing_last(page: Browser) -> None:
    column = (
        "[...document.querySelectorAll('#skipped-table tbody tr')].map(r => Number(r.lastElementChild.textContent))"
    )
    click = "document.querySelector('#skipped-table th:last-child button').click();"
    assert page.js(f"{click} return {column}") == list(range(3, 20))
    assert page.js(f"{click} return {column}") == list(range(19, 2, -1))
    sorted_by = "document.querySelector('#skipped-table th:last-child').getAttribute('aria-sort')"
    assert page.js(f"return {sorted_by}") == "descending"
    last = page.js(
        "document.querySelectorAll('#correlation-table th button')[4].click();"
        "return document.querySelector('#correlation-table tbody').lastElementChild.cells[4].textContent"
    )
    assert last == "–"


def test_a_filter_leaves_the_rows_that_hold_its_words(page: Browser) -> None:
    shown = page.js(
        "const i = document.querySelector('[data-filter=skipped-table]'); i.value = 'CONSTANT';"
        "i.dispatchEvent(new Event('input'));"
        "const rows = [...document.querySelectorAll('#skipped-table tbody tr')];"
        "return rows.filter(r => !r.hidden).map(r => r.cells[4].textContent)"
    )
    assert shown
    assert set(shown) == {"constant"}


def test_the_islands_can_be_coloured_by_series(page: Browser) -> None:
    page.show(page.js("return [...document.querySelectorAll('.plot')].findIndex(p => p.id === 'plot-islands-0')"))
    names = page.js(
        "const p = document.querySelector('#plot-islands-0');"
        "p.parentElement.querySelectorAll('.views button')[1].click();"
        "return p.data.filter(t => t.visible === true).map(t => t.name)"
    )
    assert len(names) == 9
    assert names[-1] == "other series"


@pytest.mark.parametrize("width", [390, 1100])
def test_nothing_is_wider_than_the_screen(page: Browser, width: int) -> None:
    with page.screen(width, 844):
        assert page.js("return document.documentElement.scrollWidth") <= width


def test_figures_follow_light_and_dark(page: Browser) -> None:
    ink = "return document.querySelector('#plot-training').layout.font.color"
    found = []
    for scheme in ("light", "dark", "light"):
        page.scheme(scheme)
        found.append(page.js(ink))
    assert found[0] == found[2] != found[1]


def test_the_csv_link_holds_every_row(page: Browser, tables: ReportTables) -> None:
    text = page.js("return atob(document.querySelector('#skill .csv').href.split(',')[1])")
    assert text == tables.skill.frame.to_csv(index=False)


def test_a_hostile_name_runs_nothing_and_is_read_as_it_stands(
    browser: Browser, hostile: ReportTables, tmp_path: Path
) -> None:
    _opened(browser, hostile, tmp_path / "hostile.html")
    assert browser.js("return window.hacked === undefined && document.querySelectorAll('img, b').length === 0")
    legends = browser.js("return [...document.querySelectorAll('#plot-training .legendtext')].map(t => t.textContent)")
    assert legends
    assert all(text.endswith(HOSTILE) for text in legends)
    hovered = browser.js(
        "const p = document.querySelector('#plot-nmse_against_isotropy');"
        "Plotly.Fx.hover(p, [{curveNumber: 1, pointNumber: 0}]);"
        "return p.querySelector('.hoverlayer').textContent"
    )
    assert hovered.count("onerror=window.hacked=1></script>") == 2
    assert browser.js("return window.hacked === undefined")
    assert browser.complaints() == []
    assert all(url.startswith("file:") for url in browser.requests())
