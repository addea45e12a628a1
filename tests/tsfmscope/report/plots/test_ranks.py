"""Figures of ranks: every number where it belongs, in a panel that says whose it is, and a verdict in words."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest

from tests.tsfmscope.report import recorded
from tests.tsfmscope.report.conftest import make_hostile
from tests.tsfmscope.report.drawn import Layer, has_legend, read_panels, read_scale, read_titles
from tests.tsfmscope.report.recorded import copy_rows
from tsfmscope.report import style
from tsfmscope.report.page import studies, verdicts
from tsfmscope.report.page.sections import Figure
from tsfmscope.report.plots import angles, constant, growth, histogram, plane, snapshots, spectrum, trend
from tsfmscope.report.render import draw_svg
from tsfmscope.report.style import COLOURS, DASHES
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
    # A contrast of the two modalities, as the stage statistics would store it.
    copy_rows(
        "inference",
        "answer = 'rank_tests' and measure = 'attention slope@0.01'",
        grouping="'modality'",
        block="'all'",
        statistic="'difference'",
        estimate="-0.25",
    ),
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


def sigma(ranks: duckdb.DuckDBPyConnection, where: str) -> np.ndarray:
    """Singular values of the one row of the first model's encoder that is so."""
    sql = f"select singular_values from spectra where model = '{T5}' and stack = 'encoder' and step is null and {where}"
    ((values,),) = ranks.sql(sql).fetchall()
    return np.array(values)


def test_lines_of_a_spectrum_are_the_singular_values_above_the_floor(
    by_plot: ByPlot, ranks: duckdb.DuckDBPyConnection
) -> None:
    chart = draw_study(by_plot["spectrum"])[0].chart
    row = "what = 'input' and layer = 0 and dataset = 'linear-2'"
    values = sigma(ranks, row)
    ratio = values / values[0]
    ((floor,), *_) = ranks.sql(f"select floor from spectra where {row} and stack = 'encoder'").fetchall()
    kept = [j for j in range(1, 65) if ratio[j - 1] > floor and (j <= 48 or j % 8 == 0)]
    (panel,) = read_panels(chart)
    line = panel.layer("line")
    points = sorted((r["j"], r["ratio"]) for r in line.rows if (r["model"], r["dataset"]) == (T5, "linear-2"))
    assert [j for j, _ in points] == kept
    np.testing.assert_allclose([y for _, y in points], ratio[np.array(kept) - 1], rtol=1e-6)
    assert line.encoding["y"]["scale"]["type"] == "log"
    assert read_scale(chart, "strokeDash") == {"series": DASHES[0], "image": DASHES[1]}


def test_models_have_the_pages_colours_and_those_of_a_grid_follow_its_order(by_plot: ByPlot) -> None:
    frame = by_plot["spectrum"].answers["embedded"].frame
    page = spectrum.draw_spectrum(frame.assign(x=np.nan), [T5, VIT])
    assert read_scale(page, "stroke") == {T5: COLOURS[0], VIT: COLOURS[1]} and has_legend(page, "strokeDash")
    grid = read_scale(draw_study(by_plot["spectrum"])[0].chart, "stroke")
    assert grid == {name: style.interpolate_colour(place, 2) for place, name in enumerate((VIT, T5))}


def decode(url: str) -> np.ndarray:
    """Return the palette's indices of a PNG of `heatmaps`: [n, n]."""
    data = base64.b64decode(url.partition(",")[2])
    start = data.index(b"IDAT")
    pixels = zlib.decompress(data[start + 4 : start + 4 + int.from_bytes(data[start - 4 : start])])
    width, height = (int.from_bytes(data[at : at + 4]) for at in (16, 20))
    return np.frombuffer(pixels, np.uint8).reshape(height, width + 1)[:, 1:]


def test_heat_maps_hold_the_angles_in_whole_degrees_and_are_square(
    by_plot: ByPlot, ranks: duckdb.DuckDBPyConnection
) -> None:
    panels = read_panels(draw_study(by_plot["angles"])[1].chart)
    titles = [panel.title for panel in panels]
    assert titles[:3] == [f"{VIT}\nconstant", f"{VIT}\nlinear-2", f"{VIT}\n4 heads"]
    assert titles[-2:] == ["Gaussian\nin 16 dimensions", "Gaussian\nin 768 dimensions"]
    rows = ranks.sql(f"select angles from angles where model = '{T5}' and dataset = 'linear-2' order by row").fetchall()
    expected = np.degrees(np.array([angles for (angles,) in rows], dtype=float))
    image = panels[1].layer("image")
    np.testing.assert_allclose(decode(image.rows[0]["url"]).astype(float), np.clip(expected, 0, 90), atol=0.501)
    assert panels[1].specification["width"] == panels[1].specification["height"] == image.mark["width"]
    assert image.encoding["y"]["scale"]["domain"] == [63.5, -0.5]


def test_lines_part_the_heads_of_a_projection(by_plot: ByPlot) -> None:
    panels = read_panels(draw_study(by_plot["angles"])[1].chart)
    for panel in panels:
        edges = {row["x"] for layer in panel.select("rule") for row in layer.rows}
        assert edges == ({16 * n - 0.5 for n in range(1, 4)} if "heads" in panel.title else set())
    x = panels[2].layer("image").encoding["x"]
    assert x["axis"]["values"] == [7.5, 23.5, 39.5, 55.5] and x["axis"]["labelExpr"].startswith('["1", "2", "3", "4"]')
    assert panels[0].layer("image").encoding["y"]["title"] == angles.VECTORS["tokens"]
    assert panels[5].layer("image").encoding["x"]["title"] == angles.VECTORS["rows"]
    assert panels[0].layer("point").encoding["color"]["title"] == "angle (radians)"


@pytest.mark.parametrize(
    ("text", "shown"), [("0 45 90", [0, 45, 90]), ("", [255]), ("3  90", [3, 255, 90])], ids=["whole", "NaN", "a NaN"]
)
def test_what_is_no_angle_is_outside_the_scale(text: str, shown: list[int]) -> None:
    assert angles.read_matrix(pd.DataFrame({"degrees": [text]})).tolist() == [shown]


def test_growth_counts_what_numpy_counts_and_layers_start_at_1(
    by_plot: ByPlot, ranks: duckdb.DuckDBPyConnection
) -> None:
    inputs, weights = draw_study(by_plot["growth"])
    values = [sigma(ranks, f"what = 'weight' and matrix = 'q' and layer = {n} and head is null") for n in range(1, 5)]
    of_weights = select(weights, T5, "encoder", 0.1)
    assert of_weights == list(zip(range(1, 5), [(one / one[0] > 0.1).sum() for one in values], strict=True))
    assert [layer for layer, _ in select(inputs, T5, "encoder", 0.01)] == [1, 2, 3, 4, 5]
    assert "Median over 2 data sets" in inputs.caption
    assert read_panels(inputs.chart)[0].select("area") and not read_panels(weights.chart)[0].select("area")


def select(figure: Figure, model: str, stack: str, epsilon: float) -> list[tuple[int, float]]:
    """Return layer and rank of the points of one line."""
    rows = [row for panel in read_panels(figure.chart) for row in panel.layer("line").rows]
    key = (model, stack, epsilon)
    return [(row["position"], row["rank"]) for row in rows if (row["model"], row["stack"], row["epsilon"]) == key]


def test_panels_stand_series_first_and_stacks_have_a_dash_each(by_plot: ByPlot) -> None:
    chart = draw_study(by_plot["growth"])[1].chart
    assert read_titles(chart) == [f"{T5}\nseries", f"{VIT}\nimage"]
    assert read_scale(chart, "strokeDash") == {"encoder": DASHES[0], "decoder": DASHES[1]}
    assert list(read_scale(chart, "stroke")) == ["tolerance 0.1", "tolerance 0.01", "tolerance 0.001"]
    assert ">tolerance 0.01</text>" in draw_svg(chart) and ">decoder</text>" in draw_svg(chart)


def test_a_tolerance_below_the_floor_is_hollow(by_plot: ByPlot) -> None:
    frame = by_plot["growth"].answers["weights"].frame
    chart = growth.draw_growth(frame.assign(below_noise_floor=frame["epsilon"] < 0.005), offset=0)
    points = read_panels(chart)[0].layer("point")
    assert points.encoding["fillOpacity"]["condition"]["test"] == "datum.below_noise_floor"
    assert {(row["epsilon"], row["below_noise_floor"]) for row in points.rows} == {
        (0.1, False), (0.01, False), (0.001, True),
    }  # fmt: skip


def test_a_grid_runs_along_what_varies_and_the_width_shows_its_fractions(by_plot: ByPlot) -> None:
    frame = by_plot["trend"].answers["trend"].frame
    panels = read_panels(trend.draw_trend(frame))
    names = ("embedded tokens", "query projections", "query projections, one head")
    assert [panel.title for panel in panels] == [f"{name}\nchronos-t5" for name in names]
    x = panels[0].layer("point").encoding["x"]
    assert (x["title"], x["axis"]["values"]) == ("varied quantity (log)", [1.0, 4.0])
    assert not panels[0].select("text")
    wide = read_panels(trend.draw_trend(frame.assign(width=frame["x"])))[0].layer("text")
    assert [(row["text"], row["rank"]) for row in wide.rows[2:4]] == [("½", 0.5), ("½", 2.0)]


def test_trainings_with_several_seeds_are_dots_and_their_means_a_line(by_plot: ByPlot) -> None:
    frame = by_plot["trend"].answers["trend"].frame
    again = frame.assign(model=frame["model"] + "-1", rank=frame["rank"] + 2)
    panel = read_panels(trend.draw_trend(pd.concat([frame, again], ignore_index=True)))[0]
    assert panel.layer("line").encoding["y"]["aggregate"] == "mean"
    part = frame[frame["quantity"] == "embedded tokens"]
    assert sorted(panel.layer("point").values("y")) == sorted([*part["rank"], *(part["rank"] + 2)])


def test_a_constant_series_has_a_panel_with_and_without_special_tokens(by_plot: ByPlot) -> None:
    chart = draw_study(by_plot["constant"])[0].chart
    titles = read_titles(chart)
    assert titles[2:4] == [f"{T5}\nencoder, {kind}" for kind in constant.SPECIAL.values()] and len(titles) == 8
    assert list(read_scale(chart, "stroke")) == ["1", "2", "3", "4", "5"]


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
    assert trend.name_varied(pd.Series(models)) == name


def test_many_models_are_a_heat_map_of_rank_by_width_for_two_tolerances(by_plot: ByPlot) -> None:
    study, names = by_plot["growth"], ("a", "b", "c")
    frame = study.answers["weights"].frame
    copies = [frame[frame["model"] == T5].assign(model=name) for name in names]
    many = pd.concat([frame[frame["model"] == VIT], *copies])
    (figure,) = draw_study(recorded.with_rows(recorded.with_rows(study, "weights", many), "inputs", many.iloc[:0]))
    panels = read_panels(figure.chart)
    assert [panel.title for panel in panels] == ["tolerance 0.1", "tolerance 0.01"]
    rows = [*(f"{name} {stack}" for name in names for stack in ("encoder", "decoder")), f"{VIT} encoder (image)"]
    for panel, epsilon in zip(panels, growth.MAP_TOLERANCES, strict=True):
        layer = panel.layer("rect")
        assert layer.encoding["y"]["scale"]["domain"] == [*rows, f"{VIT} decoder (image)"]
        part = frame[(frame["model"] == T5) & (frame["stack"] == "decoder") & (frame["epsilon"] == epsilon)]
        shares = (part.sort_values("layer")["rank"] / 64).tolist()
        for name in ("a decoder", "b decoder"):
            drawn = sorted((row["position"], row["share"], row["text"]) for row in layer.rows if row["name"] == name)
            assert [share for _, share, _ in drawn] == pytest.approx(shares, abs=1e-4)
            assert [(at, text) for at, _, text in drawn] == [(n, f"{s:.2f}") for n, s in enumerate(shares, start=1)]
        assert layer.encoding["color"]["title"] == "numerical rank ÷ width"


def test_a_heat_map_leaves_missing_layers_empty_and_marks_what_rounding_hides(by_plot: ByPlot) -> None:
    frame = by_plot["growth"].answers["weights"].frame
    short = frame[(frame["model"] != VIT) | (frame["layer"] < 3)]
    chart = growth.draw_rank_maps(short.assign(below_noise_floor=short["epsilon"] < 0.05), offset=0)
    first, second = (panel.layer("rect").rows for panel in read_panels(chart))
    assert {row["position"] for row in first if row["model"] == VIT} == {1, 2}
    assert len(first) == 12 and not any(growth.NOISE in row["text"] for row in first)
    assert all(row["text"].endswith(growth.NOISE) for row in second)


def test_steps_are_the_cumulative_distribution_of_every_layer(
    by_plot: ByPlot, ranks: duckdb.DuckDBPyConnection
) -> None:
    chart = draw_study(by_plot["histogram"])[0].chart
    panels, matrices = read_panels(chart), ("query projections", "first MLP matrices")
    assert [panel.title for panel in panels] == [f"{model}\n{m}" for m in matrices for model in (T5, VIT)]
    assert list(read_scale(chart, "stroke")) == ["1", "2", "3", "4"]
    for panel, matrix in ((panels[0], "q"), (panels[2], "mlp_in")):
        for layer in range(1, 5):
            values = sigma(ranks, f"what = 'weight' and matrix = '{matrix}' and layer = {layer} and head is null")
            check_steps(panel.layer("line"), layer, np.log10(np.maximum(values / values[0], 1e-5)))


def check_steps(line: Layer, layer: int, logs: np.ndarray) -> None:
    """Check that the line is the cumulative distribution at every edge of a bin."""
    assert line.mark["interpolate"] == "step-after"
    x, y = (np.array([row[axis] for row in line.rows if row["layer"] == layer]) for axis in "xy")
    assert (y[0], y[-1]) == (0, 1) and (np.diff(x) >= 0).all() and (np.diff(y) >= 0).all()
    for edge in np.unique(x[1:-1]):
        share = (logs <= edge + 1e-9).mean()
        assert y[x == edge].max() == pytest.approx(share, abs=1e-4)


def test_values_below_the_shown_decades_are_counted_at_the_edge() -> None:
    part = pd.DataFrame({"low": [-5.05, -1.0, -0.05], "n": [2, 1, 1]})
    x, y = histogram.accumulate(part, (-5.0, 0.0))
    assert (x, y) == ([-5.0, -5.0, -0.95, 0.0, 0.0], [0.0, 0.5, 0.75, 1.0, 1.0])


def test_snapshots_stand_in_the_order_of_training_the_finished_model_last(
    by_plot: ByPlot, ranks: duckdb.DuckDBPyConnection
) -> None:
    chart = draw_study(by_plot["snapshots"])[0].chart
    panels = read_panels(chart)
    assert [panel.title for panel in panels] == ["step 0", "step 100", "step 300", "step 1,000", "trained"]
    assert list(read_scale(chart, "stroke").values()) == [style.interpolate_colour(at, 4) for at in range(4)]
    line = panels[-1].layer("line")
    low, high = line.encoding["x"]["scale"]["domain"]
    for layer in range(1, 5):
        values = sigma(ranks, f"what = 'weight' and matrix = 'q' and layer = {layer} and head is null")
        check_steps(line, layer, np.clip(np.log10(values), low, high))


def test_of_many_snapshots_a_few_are_shown_the_first_and_the_last_among_them() -> None:
    frame = pd.DataFrame({"step": [*range(0, 5000, 100), None]})
    steps = snapshots.select_steps(frame)
    assert len(steps) == snapshots.STEPS + 1
    assert (steps[0], steps[-2], steps[-1]) == (0, 4900, None)
    assert snapshots.select_steps(frame.iloc[:1]) == [0]


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
    assert plane.rank_tokens(pd.DataFrame({"value": value, "type": kind})).tolist() == place


def test_a_plane_has_every_token_of_its_model(by_plot: ByPlot) -> None:
    panels = read_panels(draw_study(by_plot["spectrum"])[1].chart)
    titles = [panel.title for panel in panels]
    assert titles == [f"{model}\n{dataset}" for model in (VIT, T5) for dataset in ("constant", "linear-2")]
    frame = by_plot["spectrum"].answers["planes"].frame
    assert [len(p.layer("point").rows) for p in panels] == frame.groupby(["x_axis", "dataset"]).size().tolist()


def test_a_study_says_its_claims_verdict_with_interval_and_what_else_was_tested(by_plot: ByPlot) -> None:
    section = studies.build_section(by_plot["histogram"], [T5, VIT], [])
    mlp = next(claim for claim in section.claims if "than MLP matrices" in claim.text)
    assert "(95 % interval 0." in mlp.text and mlp.verdict == "agrees"
    assert section.notes[0].startswith("Time series minus other data, growth of the attention matrices' rank")
    assert {source.name for source in section.provenance} == {"ranks-histogram", "ranks-rank_tests", "ranks-published"}


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


def test_hostile_names_stay_text() -> None:
    with recorded.build(*CHANGES, *make_hostile()) as connection:
        for plot in sorted({*PLOTS} - {"histogram", "snapshots", "trend"}):
            section = studies.build_section(recorded.answer_study(connection, "ranks", plot), [], [])
            assert section.figures
            assert all("&lt;img" in figure.svg and "<img" not in figure.svg for figure in section.figures)
