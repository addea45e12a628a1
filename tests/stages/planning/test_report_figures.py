"""Each plot of the report is a PNG, an SVG, a PDF and a text file with its captions."""

from __future__ import annotations

from pathlib import Path

import altair as alt
import pytest

from stages.planning import report_parts
from tsfmscope.report.page.sections import Figure


def make_figure(caption: str, title: str = "") -> Figure:
    points = alt.Chart(alt.InlineData([{"x": 1}, {"x": 2}])).mark_point().encode(x="x:Q")
    return Figure("name", points, "Text for screen readers.", caption, title)


@pytest.mark.parametrize(
    ("figures", "text"),
    [
        ([make_figure("|ζ′| of one.", "Title")], "|ζ′| of one.\n"),
        ([make_figure("One.", "Inputs"), make_figure("Two.", "Weights")], "Inputs: One.\n\nWeights: Two.\n"),
        ([make_figure("One."), make_figure("")], "One.\n"),
    ],
)
def test_the_captions_stand_next_to_the_picture(
    figures: list[Figure], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_parts, "FIGURES", tmp_path)
    report_parts._write("a-study", figures)
    assert {path.name for path in tmp_path.iterdir()} == {
        f"a-study.{suffix}" for suffix in ("png", "svg", "pdf", "txt")
    }
    assert "Text for screen readers." in (tmp_path / "a-study.svg").read_text("utf-8")
    assert (tmp_path / "a-study.txt").read_text("utf-8") == text
