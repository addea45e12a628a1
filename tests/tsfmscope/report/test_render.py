"""Charts as files and inside a page: the same bytes twice, names as they stand, nothing from outside."""

from __future__ import annotations

import html
import re
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest

from tests.tsfmscope.report.conftest import HOSTILE
from tsfmscope.report import theory
from tsfmscope.report.page import studies
from tsfmscope.report.render import SUFFIXES, convert_svg, draw_inline, draw_svg, stack_charts
from tsfmscope.report.tables import ReportTables, order_models

STARTS = {".png": b"\x89PNG", ".svg": b"<svg", ".pdf": b"%PDF"}


def test_every_figure_of_a_page_is_drawn_the_same_twice_in_every_format(tables: ReportTables) -> None:
    for study in tables.studies[:3]:
        one, other = (
            draw_svg(stack_charts([(f.title, f.chart) for f in studies.draw_figures(study, order_models(tables))]))
            for _ in range(2)
        )
        assert one == other
    for suffix in SUFFIXES:
        image = convert_svg(one, suffix)
        assert image.startswith(STARTS[suffix])
        assert suffix == ".pdf" or image == convert_svg(one, suffix)


def test_every_chart_on_theory_can_be_drawn(tables: ReportTables) -> None:
    for figure in theory.draw_figures(tables).values():
        assert draw_svg(figure.chart).count("<svg") == 1


def test_bytes_do_not_depend_on_the_process() -> None:
    script = (
        "import altair as alt; from tsfmscope.report.render import draw_svg;"
        "print(draw_svg(alt.Chart(alt.InlineData([{'x': 1, 'c': 'a'}])).mark_point().encode(x='x:Q', color='c:N')))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1


def test_names_are_read_as_they_stand(hostile: ReportTables) -> None:
    for study in hostile.studies:
        for figure in studies.draw_figures(study, order_models(hostile)):
            svg = draw_inline(figure.chart, figure.name)
            texts = [
                text for element in ET.fromstring(svg).iter() for text in (element.text, element.get("aria-label"))
            ]
            assert "<img" not in svg, figure.name
            # Panels of probes and ablation are named after factors and stacks; their caption has the model.
            is_named = any(HOSTILE in text for text in texts if text)
            assert is_named or (figure.source.endswith(("-probes", "-ablation")) and HOSTILE in figure.caption), (
                figure.name
            )


def test_svg_holds_the_alternative_text_and_nothing_from_outside(tables: ReportTables) -> None:
    (figure,) = studies.draw_figures(tables.studies[0], order_models(tables))
    svg = draw_svg(figure.chart, figure.alt)
    assert svg.count("<svg") == 1 and figure.alt in html.unescape(svg)
    assert not [link for link in re.findall(r'href="([^"]*)"', svg) if not link.startswith(("#", "data:"))]


def test_figures_of_one_page_share_no_identifier_and_follow_its_colours(tables: ReportTables) -> None:
    (figure,) = studies.draw_figures(tables.studies[0], order_models(tables))
    one, other = (draw_inline(figure.chart, name) for name in ("a", "b"))
    names = [set(re.findall(r'\bid="([^"]*)"', svg)) for svg in (one, other)]
    assert not names[0] & names[1]
    for svg, own in zip((one, other), names, strict=True):
        assert set(re.findall(r"url\(#([^)]*)\)", svg)) <= own
        assert "var(--ink)" in svg and "var(--raised)" in svg


def test_several_charts_stand_one_below_another_with_their_titles(tables: ReportTables) -> None:
    figures = [figure for study in tables.studies for figure in studies.draw_figures(study, order_models(tables))]
    titled = [figure for figure in figures if figure.title]
    svg = draw_svg(stack_charts([(figure.title, figure.chart) for figure in titled]))
    assert all(f">{figure.title}</text>" in svg for figure in titled)
    assert titled[0].title not in draw_svg(stack_charts([(titled[0].title, titled[0].chart)]))


def test_another_format_is_refused() -> None:
    with pytest.raises(ValueError, match=r"suffix: got '.gif', expected one of .png, .svg, .pdf"):
        convert_svg("<svg/>", ".gif")
