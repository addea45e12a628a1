"""Each plot of the report is a PNG, an SVG and a text file with its captions."""

from __future__ import annotations

from pathlib import Path

import plotly.graph_objects as go
import pytest

from stages.planning import report_figures
from tsfmscope.report.charts.figures import apply_style
from tsfmscope.report.page.sections import Figure


def make_figure(caption: str, title: str = "") -> Figure:
    return Figure(
        "name", apply_style(go.Figure(go.Scatter(x=[1, 2], y=[1, 2]))), "Text for screen readers.", caption, title
    )


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
    monkeypatch.setattr(report_figures, "FIGURES", tmp_path)
    assert report_figures._write("a-study", figures).startswith(b"\x89PNG")
    assert {path.name for path in tmp_path.iterdir()} == {"a-study.png", "a-study.svg", "a-study.txt"}
    assert (tmp_path / "a-study.txt").read_text("utf-8") == text
