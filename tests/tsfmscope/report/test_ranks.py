"""Figures of ranks: every number where it belongs, in a panel that says whose it is, and a verdict in words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from tests.tsfmscope.report import recorded
from tests.tsfmscope.report.conftest import make_hostile
from tests.tsfmscope.report.recorded import copy_rows
from tsfmscope.report import colorscale
from tsfmscope.report.charts import depth, growth, heatmaps, histograms, spectra
from tsfmscope.report.charts.figures import COLOURS
from tsfmscope.report.page import studies, verdicts
from tsfmscope.report.page.sections import Figure
from tsfmscope.report.render.mpl_render import render
from tsfmscope.report.tables import StudyTables

ByPlot = dict[str, StudyTables]
T5, VIT = "chronos-t5-nano", "vit-nano"
PLOTS = ("spectrum", "angles", "constant", "histogram", "growth", "trend", "snapshots")
WEIGHTS = f"model = '{T5}' and what = 'weight' and matrix = 'q' and head is null and step is null"
CHANGES = [  # a second model of another modality, a grid of both, and snapshots of a training of the first
    *(copy_rows(table, f"model = '{T5}'", model=f"'{VIT}'") for table in ("spectra", "planes", "angles")),
    copy_rows("checkpoints", f"model = '{T5}'", model=f"'{VIT}'", modality="'image'"),
    f"""update studies set x_axis = '{{"{T5}": 4, "{VIT}": 1}}', figure = 'ranks Fig. 10' where study = 'ranks'""",
    *(copy_rows("spectra", WEIGHTS, step=str(step)) for step in (0, 100, 300, 1000)),
]


@pytest.fixture(scope="module")
def ranks() -> Iterator[duckdb.DuckDBPyConnection]:
    """The recorded database with a second model."""
    with recorded.build(*CHANGES) as opened:
        yield opened


@pytest.fixture(scope="module")
def by_plot(ranks: duckdb.DuckDBPyConnection) -> ByPlot:
    """The study of ranks with every plot."""
    return {plot: recorded.answer_study(ranks, "ranks", plot, figure="ranks Fig. 10") for plot in PLOTS}


def draw_study(study: StudyTables) -> list[Figure]:
    return list(studies.draw_figures(study, [T5, VIT]))


def titles(figure: go.Figure) -> list[str]:
    return [note.text.replace("<b>", "").replace("</b>", "") for note in figure.layout.annotations]


def sigma(ranks: duckdb.DuckDBPyConnection, where: str) -> np.ndarray:
    """Singular values of the one row of the first model's encoder that is so."""
    sql = f"select singular_values from spectra where model = '{T5}' and stack = 'encoder' and step is null and {where}"
    ((values,),) = ranks.sql(sql).fetchall()
    return np.array(values)


def test_lines_of_a_spectrum_are_the_singular_values_above_the_floor(
    by_plot: ByPlot, ranks: duckdb.DuckDBPyConnection
) -> None:
    figure = draw_study(by_plot["spectrum"])[0].figure
    row = "what = 'input' and layer = 0 and dataset = 'linear-2'"
    values = sigma(ranks, row)
    ratio = values / values[0]
    ((floor,), *_) = ranks.sql(f"select floor from spectra where {row} and stack = 'encoder'").fetchall()
    kept = [j for j in range(1, 65) if ratio[j - 1] > floor and (j <= 48 or j % 8 == 0)]
    (line,) = [trace for trace in figure.data if trace.name == T5 and len(trace.x) > 1]
    assert list(line.x) == kept
    np.testing.assert_allclose(line.y, ratio[np.array(kept) - 1], rtol=1e-6)
    assert figure.layout.yaxis.type == "log" and figure.layout.yaxis.range[1] > 0
    lines = {trace.name: trace.line for trace in figure.data if trace.name in (T5, VIT)}
    assert (lines[T5].dash, lines[VIT].dash) == ("solid", "dash")


def test_every_line_is_labelled_at_its_end_in_its_colour_which_is_its_modality(by_plot: ByPlot) -> None:
    frame = by_plot["spectrum"].answers["embedded"].frame.assign(x=np.nan)
    figure = spectra.draw_spectrum(frame, [T5, VIT])
    lines = {trace.name: trace.line.color for trace in figure.data if trace.name in (T5, VIT)}
    assert lines == {T5: COLOURS[0], VIT: COLOURS[1]}
    keys = {trace.name: trace.line.color for trace in figure.data if trace.name in spectra.MODALITIES}
    assert keys == {"series": COLOURS[0], "image": COLOURS[1]}
    labels = {trace.text[0]: trace.textfont.color for trace in figure.data if trace.mode == "text"}
    assert labels == {f"{name}, {data}": lines[name] for name in lines for data in ("constant", "linear-2")}
    assert figure.layout.xaxis.title.text.startswith("index of the singular value")


def test_a_grid_of_models_is_coloured_in_its_order(by_plot: ByPlot) -> None:
    lines = [trace for trace in draw_study(by_plot["spectrum"])[0].figure.data if trace.name in (T5, VIT)]
    colours = {line.name: line.line.color for line in lines}
    assert colours == {name: colorscale.interpolate_colour(place, 2) for place, name in enumerate((VIT, T5))}


def test_heat_maps_hold_the_angles_in_whole_degrees_and_are_square(
    by_plot: ByPlot, ranks: duckdb.DuckDBPyConnection
) -> None:
    figure = draw_study(by_plot["angles"])[1].figure
    assert titles(figure)[:3] == [f"{VIT}<br>constant", f"{VIT}<br>linear-2", f"{VIT}<br>4 heads"]
    assert titles(figure)[-2:] == ["Gaussian<br>in 16 dimensions", "Gaussian<br>in 768 dimensions"]
    rows = ranks.sql(f"select angles from angles where model = '{T5}' and dataset = 'linear-2' order by row").fetchall()
    expected = np.degrees(np.array([angles for (angles,) in rows], dtype=float))
    np.testing.assert_allclose(np.array(figure.data[1].z, float), np.clip(expected, 0, 90), atol=0.501)
    assert (figure.layout.coloraxis.cmin, figure.layout.coloraxis.cmax) == (0, 90)
    assert figure.layout.yaxis2.scaleanchor == "x2" and list(figure.layout.yaxis2.range) == [63.5, -0.5]


def test_lines_part_the_heads_of_a_projection(by_plot: ByPlot) -> None:
    figure = draw_study(by_plot["angles"])[1].figure
    for trace in (trace for trace in figure.data if trace.type == "scatter"):
        edges = {y for x, y in zip(trace.x, trace.y, strict=True) if x == -0.5}
        assert edges == {16 * n - 0.5 for n in range(1, 4)}
    axis = figure.layout.xaxis3
    assert (list(axis.tickvals), list(axis.ticktext)) == ([7.5, 23.5, 39.5, 55.5], ["1", "2", "3", "4"])
    assert figure.layout.yaxis.title.text == heatmaps.VECTORS["tokens"]
    assert figure.layout.xaxis6.title.text == heatmaps.VECTORS["rows"]
    assert figure.layout.coloraxis.colorbar.title.text == "angle (radians)"


@pytest.mark.parametrize(
    ("text", "shown"), [("0 45 90", [0, 45, 90]), ("", [255]), ("3  90", [3, 255, 90])], ids=["whole", "NaN", "a NaN"]
)
def test_what_is_no_angle_is_outside_the_scale(text: str, shown: list[int]) -> None:
    assert heatmaps.read_matrix(pd.DataFrame({"degrees": [text]})).tolist() == [shown]


def test_growth_counts_what_numpy_counts_and_layers_start_at_1(
    by_plot: ByPlot, ranks: duckdb.DuckDBPyConnection
) -> None:
    inputs, weights = draw_study(by_plot["growth"])
    values = [sigma(ranks, f"what = 'weight' and matrix = 'q' and layer = {n} and head is null") for n in range(1, 5)]
    lines = [trace for trace in weights.figure.data if trace.name == f"{T5}, tolerance 10⁻¹"]
    (line,) = [trace for trace in lines if trace.line.dash == "solid"]  # the encoder
    assert list(line.x) == [1, 2, 3, 4]
    assert list(line.y) == [(one / one[0] > 0.1).sum() for one in values]
    (line, _) = [trace for trace in inputs.figure.data if trace.name == f"{T5}, tolerance 10⁻²"]
    assert list(line.x) == [1, 2, 3, 4, 5]
    assert "Median over 2 data sets" in inputs.caption


def test_panels_stand_series_first_and_a_stack_alone_needs_no_dash(by_plot: ByPlot) -> None:
    figure = draw_study(by_plot["growth"])[1].figure
    assert titles(figure) == [f"{T5}<br>series", f"{VIT}<br>image"]
    dashes = {trace.name: trace.line.dash for trace in figure.data if trace.showlegend is not False}
    assert (dashes["encoder"], dashes["decoder"]) == ("solid", "dash")
    frame = by_plot["growth"].answers["weights"].frame
    alone = growth.draw_growth(frame[(frame["model"] == T5) | (frame["stack"] == "encoder")], offset=0)
    assert {trace.line.dash for trace in alone.data if str(trace.name).startswith(f"{VIT},")} == {"solid"}


def test_a_tolerance_below_the_floor_is_hollow(by_plot: ByPlot) -> None:
    frame = by_plot["growth"].answers["weights"].frame
    figure = growth.draw_growth(frame.assign(below_noise_floor=frame["epsilon"] < 0.005), offset=0)
    for trace in figure.data:
        if trace.marker.symbol is not None:
            assert set(trace.marker.symbol) == {"circle-open" if "10⁻³" in trace.name else "circle"}


def test_a_grid_runs_along_what_varies_and_the_width_shows_its_fractions(by_plot: ByPlot) -> None:
    frame = by_plot["trend"].answers["trend"].frame
    figure = growth.draw_trend(frame)
    names = ("embedded tokens", "query projections", "query projections, one head")
    assert titles(figure) == [f"{name}<br>chronos-t5" for name in names]
    assert figure.layout.xaxis.title.text == "varied quantity (log)"
    assert list(figure.layout.xaxis.ticktext) == ["1", "4"]
    assert not [trace for trace in figure.data if trace.name == growth.FULL]
    wide = growth.draw_trend(frame.assign(width=frame["x"]))
    thin = [trace for trace in wide.data if trace.name == growth.FULL]
    assert len(thin) == 3 * len(growth.FRACTIONS) and thin[1].y == (0.5, 2.0)


def test_trainings_with_several_seeds_are_dots_and_their_means_a_line(by_plot: ByPlot) -> None:
    frame = by_plot["trend"].answers["trend"].frame
    again = frame.assign(model=frame["model"] + "-1", rank=frame["rank"] + 2)
    figure = growth.draw_trend(pd.concat([frame, again], ignore_index=True))
    (one, *_) = [trace for trace in growth.draw_trend(frame).data if trace.mode == "lines+markers" and len(trace.x) > 1]
    (line, *_) = [trace for trace in figure.data if str(trace.name).startswith("mean,")]
    (dots, *_) = [trace for trace in figure.data if trace.mode == "markers" and len(trace.x) > 2]
    assert line.mode == "lines" and list(line.x) == list(one.x)
    np.testing.assert_allclose(line.y, np.array(one.y) + 1)
    assert sorted(dots.y) == sorted([*one.y, *(np.array(one.y) + 2)])


def test_a_constant_series_has_a_panel_with_and_without_special_tokens(by_plot: ByPlot) -> None:
    figure = draw_study(by_plot["constant"])[0].figure
    assert titles(figure)[2:4] == [f"{T5}<br>encoder, {kind}" for kind in spectra.SPECIAL.values()]
    assert len({trace.xaxis for trace in figure.data}) == 8
    assert [trace.name for trace in figure.data if trace.showlegend] == [f"input of layer {n}" for n in range(1, 6)]


@pytest.mark.parametrize(
    ("models", "name"),
    [
        (["chronos-heads-1", "chronos-heads-8"], "number of heads"),
        (["chronos-width-32", "text-width-64"], "model width"),
        (["chronos-t5-width-32-0", "text-width-64-2"], "model width"),
        (["bolt-patch-1", "chronos-heads-8"], "varied quantity"),
        (["bolt-depth-1", "bolt-depth-2"], "varied quantity"),
    ],
)
def test_the_axis_of_a_grid_names_what_the_models_names_say(models: list[str], name: str) -> None:
    assert growth.name_varied(pd.Series(models)) == name


def test_many_models_are_a_heat_map_of_rank_by_width_for_two_tolerances(by_plot: ByPlot) -> None:
    study, names = by_plot["growth"], ("a", "b", "c")
    frame = study.answers["weights"].frame
    copies = [frame[frame["model"] == T5].assign(model=name) for name in names]
    many = pd.concat([frame[frame["model"] == VIT], *copies])
    (figure,) = draw_study(recorded.with_rows(recorded.with_rows(study, "weights", many), "inputs", many.iloc[:0]))
    maps = [trace for trace in figure.figure.data if trace.type == "heatmap"]
    assert titles(figure.figure) == ["tolerance 10⁻¹", "tolerance 10⁻²"]
    rows = [*(f"{name} {stack}" for name in names for stack in ("encoder", "decoder")), f"{VIT} encoder (image)"]
    assert list(figure.figure.layout.yaxis.ticktext) == [*rows, f"{VIT} decoder (image)"]
    assert list(figure.figure.layout.xaxis.ticktext) == ["1", "2", "3", "4"]
    for trace, epsilon in zip(maps, depth.TOLERANCES, strict=True):
        part = frame[(frame["model"] == T5) & (frame["stack"] == "decoder") & (frame["epsilon"] == epsilon)]
        shares = (part.sort_values("layer")["rank"] / 64).tolist()
        assert trace.z[1].tolist() == trace.z[3].tolist() == pytest.approx(shares, abs=1e-4)
        assert list(trace.text[1]) == [f"{share:.2f}" for share in shares]
    assert figure.figure.layout.coloraxis.colorbar.title.text == "numerical rank ÷ width"


def test_a_heat_map_leaves_missing_layers_empty_and_marks_what_rounding_hides(by_plot: ByPlot) -> None:
    frame = by_plot["growth"].answers["weights"].frame
    short = frame[(frame["model"] != VIT) | (frame["layer"] < 3)]
    figure = depth.draw_rank_maps(short.assign(below_noise_floor=short["epsilon"] < 0.05), offset=0)
    first, second = (trace for trace in figure.data if trace.type == "heatmap")
    assert np.isnan(first.z[2:, 2:]).all() and np.isfinite(first.z[:2]).all()
    assert first.text[0][0].replace(".", "").isdigit() and second.text[0][0].endswith(depth.NOISE)


def test_steps_are_the_cumulative_distribution_of_every_layer(
    by_plot: ByPlot, ranks: duckdb.DuckDBPyConnection
) -> None:
    figure = draw_study(by_plot["histogram"])[0].figure
    matrices = ("query projections", "first MLP matrices")
    assert titles(figure) == [f"{model}<br>{matrix}" for matrix in matrices for model in (T5, VIT)]
    assert [trace.name for trace in figure.data if trace.showlegend is not False] == [f"layer {n}" for n in range(1, 5)]
    for axis, matrix in (("x", "q"), ("x3", "mlp_in")):
        lines = [trace for trace in figure.data if trace.xaxis == axis]
        for layer, line in enumerate(lines, start=1):
            values = sigma(ranks, f"what = 'weight' and matrix = '{matrix}' and layer = {layer} and head is null")
            check_steps(line, np.log10(np.maximum(values / values[0], 1e-5)))


def check_steps(line: go.Scatter, logs: np.ndarray) -> None:
    """Check that the line is the cumulative distribution at every edge of a bin."""
    x, y = np.array(line.x), np.array(line.y)
    assert (y[0], y[-1]) == (0, 1) and (np.diff(x) >= 0).all() and (np.diff(y) >= 0).all()
    for edge in np.unique(x[1:-1]):
        share = (logs <= edge + 1e-9).mean()
        assert y[x == edge].max() == pytest.approx(share, abs=1e-4)


def test_values_below_the_shown_decades_are_counted_at_the_edge() -> None:
    part = pd.DataFrame({"low": [-5.05, -1.0, -0.05], "n": [2, 1, 1]})
    x, y = histograms.accumulate(part, (-5.0, 0.0))
    assert x == [-5.0, -5.0, -5.0, -0.95, -0.95, 0.0, 0.0, 0.0]
    assert y == [0.0, 0.0, 0.5, 0.5, 0.75, 0.75, 1.0, 1.0]


def test_snapshots_stand_in_the_order_of_training_the_finished_model_last(
    by_plot: ByPlot, ranks: duckdb.DuckDBPyConnection
) -> None:
    figure = draw_study(by_plot["snapshots"])[0].figure
    assert titles(figure) == ["step 0", "step 100", "step 300", "step 1,000", "trained"]
    colours = {trace.name: trace.line.color for trace in figure.data}
    assert list(colours.values()) == [colorscale.interpolate_colour(at, 4) for at in range(4)]
    low, high = (round(end) for end in figure.layout.xaxis.range)
    for layer, line in enumerate([trace for trace in figure.data if trace.xaxis == "x5"], start=1):
        values = sigma(ranks, f"what = 'weight' and matrix = 'q' and layer = {layer} and head is null")
        check_steps(line, np.clip(np.log10(values), low, high))


def test_of_many_snapshots_a_few_are_shown_the_first_and_the_last_among_them() -> None:
    frame = pd.DataFrame({"step": [*range(0, 5000, 100), None]})
    steps = histograms.select_steps(frame)
    assert len(steps) == histograms.STEPS + 1
    assert (steps[0], steps[-2], steps[-1]) == (0, 4900, None)
    assert histograms.select_steps(frame.iloc[:1]) == [0]


@pytest.mark.parametrize(
    ("value", "kind", "place"),
    [
        ([3.0, -1.0, 7.0], [0, 1, 2], [0.5, 0, 1]),
        ([None, None, None], [5, 5, 9], [0, 0, 1]),
        ([2.0, 2.0, 2.0], [0, 1, 2], [0, 0, 0]),
        ([None, None, None], [None, None, None], [0.25, 0.25, 0.25]),
        ([1.0, None, 2.0], [0, 1, 2], [0, 0, 1]),
    ],
)
def test_tokens_are_coloured_by_the_order_of_their_values_else_of_their_ids(
    value: list[Any], kind: list[Any], place: list[float]
) -> None:
    assert heatmaps.rank_tokens(pd.DataFrame({"value": value, "type": kind})).tolist() == place


def test_a_plane_has_every_token_of_its_model(by_plot: ByPlot) -> None:
    figure = draw_study(by_plot["spectrum"])[1].figure
    assert titles(figure) == [f"{model}<br>{dataset}" for model in (VIT, T5) for dataset in ("constant", "linear-2")]
    frame = by_plot["spectrum"].answers["planes"].frame
    assert [len(trace.x) for trace in figure.data] == frame.groupby(["x_axis", "dataset"]).size().tolist()


def test_a_study_says_its_claims_verdict_with_interval_and_what_else_was_tested(by_plot: ByPlot) -> None:
    section = studies.build_section(by_plot["histogram"], [T5, VIT], [])
    mlp = next(claim for claim in section.claims if "than MLP matrices" in claim.text)
    assert "(95 % interval 0." in mlp.text and mlp.verdict == "agrees"
    assert section.notes[0].startswith("Time series minus other data, growth of the attention matrices' rank")
    assert {source.name for source in section.provenance} == {"ranks-histogram", "ranks-rank_tests", "ranks-published"}


def test_a_study_without_rows_says_so_and_still_shows_its_sql(ranks: duckdb.DuckDBPyConnection) -> None:
    section = studies.build_section(recorded.answer_study(ranks, "nothing", "growth"), [T5, VIT], [])
    assert (section.rows, section.figures, section.claims, section.notes) == (0, (), (), ())
    assert section.empty.startswith("This study has no results")
    assert all("study = 'nothing'" in source.sql for source in section.provenance)


def test_a_missing_column_is_named(by_plot: ByPlot) -> None:
    study = by_plot["spectrum"]
    answer = study.answers["planes"]
    broken = {**study.answers, "planes": replace(answer, frame=answer.frame.drop(columns="value"))}
    with pytest.raises(ValueError, match=r"'Embedded tokens on two singular directions': expected columns value"):
        studies.draw_figures(replace(study, answers=broken), [T5, VIT])


@pytest.fixture(scope="module")
def hostile() -> Iterator[duckdb.DuckDBPyConnection]:
    """The same of models whose names would run if anything read them."""
    with recorded.build(*CHANGES, *make_hostile()) as opened:
        yield opened


@pytest.mark.parametrize("plot", sorted({*PLOTS} - {"histogram", "snapshots", "trend"}))
def test_hostile_names_stay_text(plot: str, hostile: duckdb.DuckDBPyConnection) -> None:
    section = studies.build_section(recorded.answer_study(hostile, "ranks", plot), [], [])
    assert section.figures
    for figure in section.figures:
        assert "<" not in figure.json
        text = json.dumps(json.loads(figure.json))
        assert "&lt;img" in text and "<img" not in text


@pytest.mark.parametrize("plot", ["spectrum", "angles", "trend"])
def test_a_figure_is_rendered_without_a_browser(plot: str, by_plot: ByPlot) -> None:
    images = render([(figure.title, figure.figure) for figure in draw_study(by_plot[plot])])
    assert images["png"].startswith(b"\x89PNG") and b"<svg" in images["svg"]


def test_one_claim_of_many_models_is_one_sentence() -> None:
    row = dict.fromkeys(verdicts.COLUMNS) | {"claim": "Rank grows", "source": "section 4", "quantity": "mean"}
    rows = [
        row | {"model": name, "measured": value, "verdict": verdict, "published_text": "> 0", "comparable": True}
        for name, value, verdict in (("a", 0.2, "agrees"), ("b", -0.1, "differs"), ("c", None, "undecided"))
    ]
    assert len(verdicts.describe_claims(pd.DataFrame(rows))) == 3
    (said,) = verdicts.describe_claims(pd.DataFrame([*rows, rows[0] | {"model": "d"}]))
    assert said.verdict == "undecided"
    assert said.text.endswith("Of 4 models here 2 agree (a 0.2, d 0.2), 1 differs (b −0.1), 1 is undecided (c –).")
    (alike,) = verdicts.describe_claims(pd.DataFrame([rows[0] | {"model": name} for name in "abcd"]))
    assert alike.verdict == "agrees"
