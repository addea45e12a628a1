"""Pictures of ranks: every number where it belongs, in a panel that says whose it is, and a verdict in words."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from tests.tasks.report.conftest import HOSTILE
from tests.tasks.report.rank_rows import GRID, MODALITIES, SERIES, STUDIES, made_up, rank_studies
from tsfmscope.tasks.report import colorscale
from tsfmscope.tasks.report.charts import growth, heatmaps, histograms, spectra
from tsfmscope.tasks.report.page import studies, verdicts
from tsfmscope.tasks.report.page.page import render
from tsfmscope.tasks.report.page.sections import Figure
from tsfmscope.tasks.report.plot import load_plot
from tsfmscope.tasks.report.render.mpl_render import render as still
from tsfmscope.tasks.report.tables import ReportTables, StudyTables

MODELS = sorted([*MODALITIES, *GRID])


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, StudyTables]:
    """Every study of made-up ranks."""
    return rank_studies(tmp_path_factory.mktemp("ranks"))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> dict[str, StudyTables]:
    """The same of models whose names would run if anything read them."""
    return rank_studies(tmp_path_factory.mktemp("hostile"), lambda name: name + HOSTILE, tested=False)


def drawn(found: dict[str, StudyTables], study: str) -> list[Figure]:
    return list(studies.draw_figures(found[study], MODELS))


def titles(figure: go.Figure) -> list[str]:
    return [one.text.replace("<b>", "").replace("</b>", "") for one in figure.layout.annotations]


def sigma(what: str, **where: Any) -> np.ndarray:
    """Singular values of the one made-up row of `spectra` that is so."""
    rows = [row for row in made_up()["spectra"] if all(row.get(name) == one for name, one in where.items())]
    (row,) = [row for row in rows if row["what"] == what]
    return np.array(row["singular_values"])


@pytest.mark.parametrize(
    ("study", "query"), [(study, query) for study, (plot, _) in STUDIES.items() for query in load_plot(plot).queries]
)
def test_a_query_has_the_columns_that_its_plot_reads(study: str, query: str, found: dict[str, StudyTables]) -> None:
    columns = load_plot(found[study].plot).queries[query]
    assert set(columns) <= set(found[study].answers[query].frame.columns)


def test_lines_of_a_spectrum_are_the_singular_values_above_the_floor(found: dict[str, StudyTables]) -> None:
    figure = drawn(found, "fig2")[0].figure
    for model, modality in MODALITIES.items():
        values = sigma("input", model=model, layer=0, job_key="first")
        ratio = values / values[0]
        kept = [j for j in range(1, 65) if ratio[j - 1] > 1e-6 and (j <= 48 or j % 8 == 0)]
        (line,) = [trace for trace in figure.data if trace.name == model]
        assert list(line.x) == kept
        np.testing.assert_allclose(line.y, ratio[np.array(kept) - 1], rtol=1e-6)
        assert line.line.dash == {"series": "solid", "text": "dash", "image": "dot", "table": "dashdot"}[modality]
    assert figure.layout.yaxis.type == "log" and figure.layout.yaxis.range[1] > 0
    assert len({trace.line.color for trace in figure.data if trace.name in MODALITIES}) == len(MODALITIES)


def test_a_grid_of_models_is_coloured_in_its_order(found: dict[str, StudyTables]) -> None:
    lines = drawn(found, "fig3a")[0].figure.data
    assert [line.name for line in lines] == list(GRID)
    assert [line.line.color for line in lines] == [
        colorscale.interpolate_colour(place, len(GRID)) for place in range(len(GRID))
    ]


def test_a_signal_has_a_panel_where_a_model_has_several(found: dict[str, StudyTables]) -> None:
    angles, lines = (next(one for one in drawn(found, "fig13") if kind in one.alt) for kind in ("Heat", "Line"))
    assert titles(lines.figure) == ["noise", "sinusoid"]
    assert sum(trace.showlegend for trace in lines.figure.data) == len(SERIES)
    bolt = "chronos-bolt-nano<br>"
    assert titles(angles.figure)[:2] == [bolt + "noise", bolt + "sinusoid"]
    assert titles(angles.figure)[2:] == ["Gaussian<br>in 16 dimensions", "Gaussian<br>in 64 dimensions"]


def test_heat_maps_hold_the_angles_in_whole_degrees_and_are_square(found: dict[str, StudyTables]) -> None:
    figure = drawn(found, "fig3b")[0].figure
    rows = [row for row in made_up()["angles"] if row["dataset" if "dataset" in row else "what"] == "noise"]
    expected = np.degrees(np.array([row["angles"] for row in rows]))
    np.testing.assert_allclose(np.array(figure.data[0].z, float), expected, atol=0.501)
    assert (figure.layout.coloraxis.cmin, figure.layout.coloraxis.cmax) == (0, 90)
    assert figure.layout.yaxis2.scaleanchor == "x2" and list(figure.layout.yaxis2.range) == [31.5, -0.5]


def test_lines_part_the_heads_of_a_projection(found: dict[str, StudyTables]) -> None:
    figure = drawn(found, "fig12")[0].figure
    assert titles(figure) == [f"bolt-patch-{size}<br>{2 * size} heads" for size in (1, 2, 4)]
    borders = [trace for trace in figure.data if trace.type == "scatter"]
    for heads, trace in zip((2, 4, 8), borders, strict=True):
        edges = {y for x, y in zip(trace.x, trace.y, strict=True) if x == -0.5}
        assert edges == {48 / heads * n - 0.5 for n in range(1, heads)}


@pytest.mark.parametrize(
    ("text", "shown"), [("0 45 90", [0, 45, 90]), ("", [255]), ("3  90", [3, 255, 90])], ids=["whole", "NaN", "a NaN"]
)
def test_what_is_no_angle_is_outside_the_scale(text: str, shown: list[int]) -> None:
    assert heatmaps.read_matrix(pd.DataFrame({"degrees": [text]})).tolist() == [shown]


def test_growth_counts_what_numpy_counts_and_layers_start_at_1(found: dict[str, StudyTables]) -> None:
    inputs, weights = drawn(found, "flow")
    assert titles(weights.figure)[0] == "chronos-bolt-nano<br>series"
    values = [sigma("weight", model="vit-nano", matrix="q", layer=n, job_key="weights") for n in range(1, 5)]
    (line,) = [trace for trace in weights.figure.data if trace.name == "vit-nano, ε = 10⁻¹"]
    assert list(line.x) == [1, 2, 3, 4]
    assert list(line.y) == [(one / one[0] > 0.1).sum() for one in values]
    (line,) = [trace for trace in inputs.figure.data if trace.name == "moirai-nano, ε = 10⁻²"]
    assert list(line.x) == [1, 2, 3, 4, 5]
    assert "Median over 2 data sets" in inputs.caption


def test_panels_stand_series_first_and_a_stack_alone_needs_no_dash(found: dict[str, StudyTables]) -> None:
    figure = drawn(found, "flow")[1].figure
    assert [title.split("<br>")[1] for title in titles(figure)] == ["series"] * 3 + ["text", "image", "table"]
    dashes = {trace.name: trace.line.dash for trace in figure.data if trace.showlegend is not False}
    assert (dashes["encoder"], dashes["decoder"]) == ("solid", "dash")
    assert {trace.line.dash for trace in figure.data if str(trace.name).startswith("moirai-nano,")} == {"solid"}


def test_a_tolerance_below_the_floor_is_hollow(found: dict[str, StudyTables]) -> None:
    frame = found["flow"].answers["weights"].frame
    figure = growth.draw_growth(frame.assign(below_noise_floor=frame["epsilon"] < 0.005), offset=0)
    for trace in figure.data:
        if trace.marker.symbol is not None:
            assert set(trace.marker.symbol) == {"circle-open" if "10⁻³" in trace.name else "circle"}


def test_a_grid_runs_along_what_varies_and_the_width_shows_its_fractions(found: dict[str, StudyTables]) -> None:
    frame = found["fig9"].answers["trend"].frame
    figure = growth.draw_trend(frame)
    assert titles(figure) == [f"{name}<br>chronos-bolt" for name in growth.QUANTITIES]
    assert list(figure.layout.xaxis.ticktext) == ["1", "2", "4", "8", "16", "32"]
    assert not [trace for trace in figure.data if trace.name == growth.FULL]
    wide = growth.draw_trend(frame.assign(width=frame["x"]))
    thin = [trace for trace in wide.data if trace.name == growth.FULL]
    assert len(thin) == 3 * len(growth.FRACTIONS) and thin[1].y == (0.5, 16.0)


def test_only_what_special_tokens_add_outlives_a_constant_series(found: dict[str, StudyTables]) -> None:
    figure = drawn(found, "fig5c")[0].figure
    assert titles(figure)[:2] == [f"chronos-bolt-nano<br>encoder, {one}" for one in spectra.SPECIAL.values()]
    assert all(len(trace.x) == 1 for trace in figure.data if trace.xaxis == "x2")
    told = [trace.name for trace in figure.data if trace.showlegend]
    assert told == [f"input of layer {layer}" for layer in range(1, 6)]


def test_bars_count_every_value_of_five_decades_and_are_fainter_toward_1(found: dict[str, StudyTables]) -> None:
    one = next(one for one in drawn(found, "fig10") if one.title == "vit-nano")
    assert titles(one.figure) == [f"{name}, layer {n}" for name in ("queries", "MLP") for n in range(1, 5)]
    for place, bars in enumerate(one.figure.data):
        matrix, layer = ("q", "mlp_in")[place // 4], place % 4 + 1
        values = sigma("weight", model="vit-nano", matrix=matrix, layer=layer, job_key="weights")
        assert sum(bars.y) == (values / values[0] > 1e-5).sum()
        opacity = [float(shade.removesuffix(")").split(",")[-1]) for shade in bars.marker.color]
        assert opacity == sorted(opacity, reverse=True)
        assert max(bars.x) < 0


@pytest.mark.parametrize(
    ("low", "decade"), [(-5.0, 0), (-4.2, 0), (-4.0, 1), (-1.2, 3), (-1.0, 4), (-0.2, 4), (0.0, 4), (-7.0, 0)]
)
def test_a_bar_has_the_shade_of_its_decade(low: float, decade: int) -> None:
    assert histograms._decade(low) == decade


def test_snapshots_stand_in_the_order_of_training_the_finished_model_last(found: dict[str, StudyTables]) -> None:
    figure = drawn(found, "fig11")[0].figure
    steps = [title.split(",")[0] for title in titles(figure)[::4]]
    assert steps == ["step 0", "step 100", "step 300", "step 1", "trained"]  # 1,000
    assert [sum(trace.y) for trace in figure.data[:4]] == [64] * 4


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


def test_a_plane_has_every_token_of_its_model(found: dict[str, StudyTables]) -> None:
    figure = drawn(found, "fig14")[0].figure
    assert titles(figure) == sorted(MODALITIES)
    assert [len(trace.x) for trace in figure.data] == [300] * len(MODALITIES)


def test_a_study_says_its_claims_verdict_with_interval_and_what_else_was_tested(found: dict[str, StudyTables]) -> None:
    section = studies.build_section(found["fig10"], MODELS, [])
    assert len(section.claims) == 3
    assert "Of 6 models here" in section.claims[0].text and "moirai-nano 0." in section.claims[0].text
    assert "(95 % interval −0." in section.claims[1].text and section.claims[1].verdict == "agrees"
    (note,) = section.notes  # the other difference between modalities is the claim itself
    assert note.startswith("Time series minus other data, growth of the attention matrices' rank")
    (listing,) = section.tables
    assert listing.table.total == len(MODALITIES)
    assert {one.name for one in section.provenance} == {"fig10-histogram", "fig10-rank_tests", "fig10-published"}


def test_a_study_without_rows_says_so_and_still_shows_its_sql(found: dict[str, StudyTables]) -> None:
    section = studies.build_section(found["nothing"], MODELS, [])
    assert (section.rows, section.figures, section.claims, section.notes) == (0, (), (), ())
    assert section.empty.startswith("This study has no results")
    assert all("where study = 'nothing'" in one.sql for one in section.provenance)


def test_a_lacking_column_is_named(found: dict[str, StudyTables]) -> None:
    study = found["fig14"]
    answer = study.answers["planes"]
    broken = {"planes": replace(answer, frame=answer.frame.drop(columns="value"))}
    with pytest.raises(ValueError, match=r"'Embedded tokens on two singular directions': expected columns value"):
        studies.draw_figures(replace(study, answers=broken), MODELS)


@pytest.mark.parametrize("study", [name for name in STUDIES if name not in ("nothing", "fig10")])
def test_hostile_names_stay_text(study: str, hostile: dict[str, StudyTables]) -> None:
    section = studies.build_section(hostile[study], [], [])
    assert section.figures
    for picture in section.figures:
        assert "<" not in picture.json and "%{x}<" not in picture.json
        shown = json.dumps(json.loads(picture.json))
        assert "<img" not in shown


@pytest.mark.parametrize("study", ["fig3b", "fig9", "fig14"])
def test_a_still_is_drawn(study: str, found: dict[str, StudyTables]) -> None:
    made = still([(one.title, one.figure) for one in drawn(found, study)])
    assert made["png"].startswith(b"\x89PNG") and b"<svg" in made["svg"]


def test_a_page_of_ranks_holds_every_study_and_no_section_of_another_kind(
    found: dict[str, StudyTables], tables: ReportTables
) -> None:
    page = render(replace(tables, studies=tuple(found.values())))
    for study in found:
        start = page.index(f'id="study-{study}"')
        part = page[start : page.index("</section>", start)]
        assert "Forecast error against isotropy" not in part and "zeta_adjusted" not in part
        assert ("This study has no results" in part) == (study == "nothing")
    assert len(page) < 8e6  # plotly.js is 5 of them


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
