"""Panels hold every point that log axes can show, once, where the paper would put it."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from tsfmscope.report.charts import grid, panels
from tsfmscope.report.charts.figures import COLOURS
from tsfmscope.report.tables import ReportTables

MODELS = ("m", "n")
CONDITIONS = ("long", "short")


def frame(datasets: dict[str, tuple[str, str | None]], models: tuple[str, ...] = MODELS) -> pd.DataFrame:
    """A row a (model, data set, condition), from data set -> domain and the paper's name; values differ."""
    rows = [
        {"model": m, "dataset": d, "domain": datasets[d][0], "paper": datasets[d][1], "condition": c}
        for m, d, c in itertools.product(models, datasets, CONDITIONS)
    ]
    at = np.arange(1, len(rows) + 1)
    return pd.DataFrame(rows).assign(zeta_adjusted=at * 1e-3 * (-1.0) ** at, nmse=at * 1e-2)


PAIR = frame({"car": ("retail", "retail-1"), "dominick": ("retail", "retail-2"), "rain": ("nature", "nature-2")})


def points(figure: go.Figure) -> list[tuple[float, float]]:
    """What is drawn with a hover text: neither legend nor arrows."""
    traces = [trace for trace in figure.data if trace.hovertemplate]
    return [pair for trace in traces for pair in zip(trace.x, trace.y, strict=True) if pair[0] is not None]


def titles(figure: go.Figure) -> list[str]:
    return [annotation.text for annotation in figure.layout.annotations]


def test_every_point_that_log_axes_can_show_is_drawn_once(tables: ReportTables) -> None:
    rows = tables.studies[0].answers["points"].frame.copy()
    rows.loc[0, "zeta_adjusted"] = np.nan
    wanted = rows.dropna(subset="zeta_adjusted")
    figure = panels.draw_by_domain(rows, sorted(set(rows["model"])), ("context-128", "noisy"))
    assert len(wanted) < len(rows)
    assert sorted(points(figure)) == sorted(zip(wanted["zeta_adjusted"].abs(), wanted["nmse"], strict=True))


def test_a_panel_has_the_papers_letter_and_its_own_domains_points() -> None:
    figure = panels.draw_by_domain(PAIR, MODELS, CONDITIONS)
    assert titles(figure) == ["<b>b · nature</b><br>○ rain", "<b>e · retail</b><br>● car<br>○ dominick"]
    told = {(trace.xaxis, row[0]) for trace in figure.data if trace.hovertemplate for row in trace.customdata if row[0]}
    assert told == {("x", "rain"), ("x2", "car"), ("x2", "dominick")}


def test_a_title_has_the_rho_of_the_drawn_measure_and_the_number_of_points_if_some_are_missing() -> None:
    rows = PAIR[(PAIR["condition"] == "long") & (PAIR["domain"] == "retail")].assign(
        zeta_adjusted_corrected=0.1,
        rho_printed=[{"car": -0.04, "dominick": 0.649}[name] for name in PAIR["dataset"] if name != "rain"][::2],
        rho_corrected=1.0,
    )
    rows.loc[(rows["dataset"] == "dominick") & (rows["model"] == "n"), "nmse"] = 0.0
    for of_paper, lines in (
        (True, ["● car, ρ = 0.0", "○ dominick, ρ = 0.6, n = 1"]),
        (False, ["● car, ρ = 1.0", "○ dominick, ρ = 1.0, n = 1"]),
    ):
        (title,) = titles(panels.draw_by_domain(rows, MODELS, CONDITIONS, of_paper=of_paper))
        assert title.split("<br>")[1:] == lines
    (title,) = titles(panels.draw_by_domain(rows.assign(rho_printed=np.nan), MODELS, CONDITIONS))
    assert "ρ" not in title


def test_both_conditions_have_their_rho_in_the_studys_order() -> None:
    rows = PAIR[PAIR["dataset"] == "rain"]
    rows = rows.assign(rho_printed=[{"long": -0.5, "short": 0.5}[name] for name in rows["condition"]])
    for order, text in ((CONDITIONS, "ρ = −0.5 and 0.5"), (CONDITIONS[::-1], "ρ = 0.5 and −0.5")):
        assert titles(panels.draw_by_domain(rows, MODELS, order)) == [f"<b>b · nature</b><br>○ rain, {text}"]


def test_dataset_1_is_filled_and_2_is_open_even_where_1_is_lacking() -> None:
    for trace in (t for t in panels.draw_by_domain(PAIR, MODELS, CONDITIONS).data if t.hovertemplate):
        for row, symbol in zip(trace.customdata, trace.marker.symbol, strict=True):
            if row[0]:
                assert ("-open" in symbol) == (row[0] in ("dominick", "rain"))


def test_a_line_joins_the_two_data_sets_of_one_model_and_condition_only() -> None:
    more = pd.concat([PAIR, PAIR[PAIR["dataset"] == "car"].assign(dataset="zoo", paper=None, zeta_adjusted=0.5)])
    figure = panels.draw_by_domain(more, MODELS, CONDITIONS)
    lines = []
    for trace in (trace for trace in figure.data if trace.hovertemplate):
        for real, part in itertools.groupby(trace.customdata, key=lambda row: bool(row[0])):
            lines += [tuple(map(tuple, part))] if real else []
    joined = [line for line in lines if len(line) > 1]
    assert len(joined) == len(MODELS) * len(CONDITIONS)
    for one, other in joined:
        assert (one[0], other[0]) == ("car", "dominick")
        assert one[1:] == other[1:]


def test_a_model_has_its_colour_though_others_are_not_there() -> None:
    rows = PAIR[PAIR["model"] == "n"]
    assert {t.marker.color for t in panels.draw_by_domain(rows, MODELS, CONDITIONS).data if t.hovertemplate} == {
        COLOURS[1]
    }


@pytest.mark.parametrize("count", [1, 2, 3, 5, 6, 12])
def test_panels_do_not_overlap_and_share_their_ranges(count: int) -> None:
    rows = frame({f"d{n}": (f"domain{n:02d}", None) for n in range(count)})
    figure = panels.draw_by_domain(rows, MODELS, CONDITIONS)
    for layout in (figure.layout.to_plotly_json(), figure.layout.meta["narrow"]):
        boxes = []
        for place in range(count):
            names = grid.axis_names(place)
            x, y = (layout[name.replace(name[0], f"{name[0]}axis")] for name in names.values())
            assert x["range"] == layout["xaxis"]["range"] and y["range"] == layout["yaxis"]["range"]
            boxes.append((*x["domain"], *y["domain"]))
        for one, other in itertools.combinations(boxes, 2):
            assert one[1] <= other[0] or other[1] <= one[0] or one[3] <= other[2] or other[3] <= one[2]
        assert min(box[2] for box in boxes) == 0


def test_all_values_lie_inside_the_shared_ranges() -> None:
    rows = PAIR.assign(zeta_adjusted=10.0 ** -np.arange(len(PAIR)), nmse=1.0)
    figure = panels.draw_by_domain(rows, MODELS, CONDITIONS)
    low, high = figure.layout.xaxis.range
    assert low < -(len(PAIR) - 1) and high > 0
    assert figure.layout.yaxis.range[0] < 0 < figure.layout.yaxis.range[1]


@pytest.mark.parametrize("domain", [None, "", float("nan")])
def test_a_data_set_without_a_domain_has_a_panel_too(domain: object) -> None:
    two = PAIR[PAIR["domain"] == "retail"]
    assert titles(panels.draw_by_domain(two.assign(domain=domain), MODELS, CONDITIONS)) == [
        "<b>a · other</b><br>● car<br>○ dominick"
    ]


def test_the_fourth_data_set_of_a_domain_and_all_after_it_look_alike_and_the_legend_says_so() -> None:
    rows = frame({f"d{n}": ("nature", None) for n in range(6)})
    figure = panels.draw_by_domain(rows, MODELS, CONDITIONS)
    keys = [trace.name for trace in figure.data if trace.showlegend is not False]
    assert keys[2:6] == ["Dataset 1", "Dataset 2", "Dataset 3", "Dataset 4 and more"]
    found = {
        row[0]: symbol
        for t in figure.data
        if t.hovertemplate
        for row, symbol in zip(t.customdata, t.marker.symbol, strict=True)
    }
    assert len({found[f"d{n}"] for n in range(3, 6)}) == 1
    assert len({found[f"d{n}"] for n in range(4)}) == 4


@pytest.mark.parametrize("lines", [1, 2, 3, 4])
def test_titles_of_several_lines_fit_between_two_rows(lines: int) -> None:
    laid = grid.lay_out(["\n".join("abcd"[:lines])] * 4, grid.make_axis("x"), grid.make_axis("y"))
    inner = laid["height"] - laid["margin"]["t"] - laid["margin"]["b"]
    gap = (laid["yaxis"]["domain"][0] - laid["yaxis4"]["domain"][1]) * inner
    assert gap >= grid.LEGEND + grid.SECOND * (lines - 1)
