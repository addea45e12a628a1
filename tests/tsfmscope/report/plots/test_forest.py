"""The forest plot shows the correlations that scipy computes from the single scores, and their mean."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tests.tsfmscope.report import recorded
from tests.tsfmscope.report.drawn import read_panels, read_titles
from tests.tsfmscope.report.recorded import answer_study, copy_rows, with_rows
from tsfmscope.report.page import studies
from tsfmscope.report.page.sections import Figure
from tsfmscope.report.plots import forest
from tsfmscope.report.render import draw_svg
from tsfmscope.report.style import Chart
from tsfmscope.report.tables import StudyTables

STUDY, BASE = "isotropy", "model = 'chronos-t5-nano'"
ISOTROPY, ERROR = "zeta_adjusted_corrected", "nmse"
# Four further models, whose isotropy and error differ from those of the recorded ones in another way in each
# data set, and a result of the stage inference.
CHANGES = [
    *(
        copy_rows(table, BASE, model=f"'copy-{n}'", **{column: f"{column} * (1 + hash({where} || '{n}') % 97)"})
        for n in range(4)
        for table, column, where in (
            ("geometry", ISOTROPY, "dataset || condition || 'g'"),
            ("forecasts", ERROR, "dataset || condition || 'f'"),
        )
    ),
    *(copy_rows("checkpoints", BASE, model=f"'copy-{n}'") for n in range(4)),
    "update inference set estimate = 0.07, low = -0.45, high = 0.35, p = 0.25, p_smallest = 0.002 "
    f"where answer = 'correlation' and study = '{STUDY}' and measure = '{ISOTROPY}' and \"grouping\" = 'per_dataset'",
]


@pytest.fixture(scope="module")
def models() -> Iterator[duckdb.DuckDBPyConnection]:
    """A run of six models."""
    with recorded.build(*CHANGES) as connection:
        yield connection


@pytest.fixture(scope="module")
def study(models: duckdb.DuckDBPyConnection) -> StudyTables:
    """The study with the plot `forest`."""
    return answer_study(models, STUDY, "forest", figure="isotropy section 5")


def draw(study: StudyTables) -> Figure:
    (figure,) = studies.draw_figures(study, [])
    return figure


def read_marks(chart: Chart) -> dict[tuple[str, str], float]:
    """Return (data set, condition) -> the drawn ρ."""
    (panel,) = read_panels(chart)
    rows = panel.select("point")[0].rows
    found = {(row["dataset"], row["condition"]): row["spearman"] for row in rows}
    assert len(found) == len(rows)
    return found


def read_mean(chart: Chart) -> tuple[list[float], list[list[float]]]:
    """Return the drawn mean, and its drawn intervals."""
    (panel,) = read_panels(chart)
    diamonds = [layer for layer in panel.select("point") if layer.mark.get("shape") == "diamond"]
    wide = [layer for layer in panel.select("rule") if layer.mark.get("strokeWidth") == 3]
    means = [row["spearman"] for layer in diamonds for row in layer.rows]
    return means, [[row["low"], row["high"]] for layer in wide for row in layer.rows]


def test_each_mark_is_the_rho_that_scipy_computes_from_the_single_scores(
    models: duckdb.DuckDBPyConnection, study: StudyTables
) -> None:
    points = models.sql(
        f"with last as (select * from geometry join checkpoints using (model) where study = '{STUDY}' and normed "
        "and stack = output_stack), "
        "errors as (select model, dataset, condition, avg(nmse) as nmse from forecasts "
        f"where study = '{STUDY}' group by all) "
        f"select model, dataset, condition, {ISOTROPY} as z, nmse "
        "from last join errors using (model, dataset, condition)"
    ).df()
    wanted = {
        key: stats.spearmanr(-part["z"].abs(), np.log(part["nmse"])).statistic
        for key, part in points.groupby(["dataset", "condition"])
    }
    assert len(wanted) == 6 and set(points.groupby(["dataset", "condition"]).size()) == {6}
    chart = draw(study).chart
    assert read_marks(chart) == pytest.approx(wanted)
    assert len({round(x, 6) for x in wanted.values()}) > 2  # the marks differ, so that mistaken rows would show
    assert read_mean(chart)[0] == [0.07]  # the stored estimate of the stage statistics


def test_the_rho_under_a_panel_of_domains_is_the_same(models: duckdb.DuckDBPyConnection, study: StudyTables) -> None:
    points = answer_study(models, STUDY, "domains").answers["points"].frame
    found = {(row.dataset, row.condition): row.rho_corrected for row in points.itertuples()}
    assert found == pytest.approx(read_marks(draw(study).chart))
    for key, part in points.groupby(["dataset", "condition"]):
        rho = stats.spearmanr(-part["zeta_adjusted"].abs(), np.log(part["nmse"])).statistic
        assert part["rho_printed"].tolist() == pytest.approx([rho] * 6), key


def test_the_mean_has_its_interval_and_the_words_the_same_numbers(study: StudyTables) -> None:
    drawn = draw(study)
    (mean,), intervals = read_mean(drawn.chart)
    assert intervals == [[-0.45, 0.35]]
    (title,) = read_titles(drawn.chart)
    rho = f"{mean:.2f}".replace("-", "−")
    assert title.startswith(f"Mean ρ = {rho} (95 % interval −0.45 to 0.35)\np = 0.25, permuting models\n")
    assert f"Mean ρ = {rho} (95 % interval −0.45 to 0.35), p = 0.25" in drawn.alt
    assert "p is at least 0.002" in drawn.caption and "over 6 models" in drawn.caption


def test_the_interval_and_p_of_the_mean_are_those_of_the_papers_claim(
    models: duckdb.DuckDBPyConnection, study: StudyTables
) -> None:
    claim = f"study = '{STUDY}' and claim like 'Isotropy is a reliable indicator%'"
    found = models.sql(f"select distinct low, high, p from published_vs_measured where {claim}").fetchall()
    mean = study.answers["mean_correlation"].frame
    assert found == [tuple(mean[["low", "high", "p"]].iloc[0])]


def test_the_most_negative_data_set_is_on_top_and_every_row_has_its_name(study: StudyTables) -> None:
    (panel,) = read_panels(draw(study).chart)
    means = study.answers["dataset_correlations"].frame.groupby("dataset")["spearman"].mean().sort_values()
    y = panel.select("point")[0].encoding["y"]
    assert y["scale"]["domain"] == [*means.index, "mean of 6"]
    assert y["axis"]["values"] == y["scale"]["domain"]


def test_conditions_are_told_apart_only_where_there_are_several(study: StudyTables) -> None:
    both = draw(study)
    rows = read_panels(both.chart)[0].select("point")[0].rows
    assert {(row["condition"], row["is_filled"]) for row in rows} == {("context-128", True), ("noisy", False)}
    assert "Filled: context-128; open: noisy." in both.caption
    frame = study.answers["dataset_correlations"].frame
    one = draw(with_rows(study, "dataset_correlations", frame[frame["condition"] == "noisy"]))
    assert all(row["is_filled"] for row in read_panels(one.chart)[0].select("point")[0].rows)
    assert "Filled" not in one.caption


def test_a_data_set_with_an_interval_has_a_whisker(study: StudyTables) -> None:
    rows = study.answers["dataset_correlations"].frame.copy()
    assert rows["low"].isna().all()  # that of both conditions is not that of one
    rows.loc[0, ["low", "high"]] = [-0.9, 0.1]
    (panel,) = read_panels(draw(with_rows(study, "dataset_correlations", rows)).chart)
    (whiskers,) = (layer for layer in panel.select("rule") if "yOffset" in layer.encoding)
    ends = [(row["low"], row["high"]) for row in whiskers.rows]
    assert ends.count((-0.9, 0.1)) == 1 and ends.count((None, None)) == 5


def test_a_single_condition_takes_the_interval_of_its_data_set() -> None:
    own = "study = 'isotropy' and condition = 'noisy'"
    interval = "answer = 'correlation_by_dataset' and study = 'isotropy' and block = 'linear-2'"
    changes = [
        *CHANGES,
        f"delete from geometry where {own}",
        f"delete from forecasts where {own}",
        f"update inference set low = -0.8, high = 0.6 where {interval} and measure = '{ISOTROPY}'",
    ]
    with recorded.build(*changes) as connection:
        rows = answer_study(connection, STUDY, "forest").answers["dataset_correlations"].frame
    limits = {row.dataset: (row.low, row.high) for row in rows.itertuples() if row.low == row.low}
    assert limits == {"linear-2": (-0.8, 0.6)}


def test_undefined_correlations_are_counted_and_without_any_nothing_is_drawn(study: StudyTables) -> None:
    rows = study.answers["dataset_correlations"].frame.copy()
    rows.loc[:1, "spearman"] = np.nan
    assert "2 more correlations are undefined" in draw(with_rows(study, "dataset_correlations", rows)).caption
    empty = with_rows(study, "dataset_correlations", rows.assign(spearman=np.nan))
    assert studies.draw_figures(empty, []) == ()


@pytest.mark.parametrize("missing", [np.nan, None])
def test_a_mean_without_interval_or_value_is_drawn_without_it(missing: float | None, study: StudyTables) -> None:
    mean = study.answers["mean_correlation"].frame.astype(object)
    limits = dict.fromkeys(("low", "high", "p", "p_smallest"), missing)
    bare = draw(with_rows(study, "mean_correlation", mean.assign(**limits)))
    assert read_mean(bare.chart)[1] == []
    assert "without an interval" in bare.caption and "at least" not in bare.caption
    for rows in (mean.assign(spearman=missing), mean.iloc[:0]):
        none = draw(with_rows(study, "mean_correlation", rows))
        assert read_mean(none.chart) == ([], [])
        assert "The mean is undefined." in none.alt and "Diamond" not in none.caption


def test_every_row_of_a_long_plot_has_its_label() -> None:
    names = [f"set-{n}" for n in range(40)]
    rows = pd.DataFrame({"dataset": names, "condition": "c", "n_models": 5, "spearman": 0.1, "low": None, "high": None})
    mean = {"n": np.int64(40), "spearman": np.float64(0.1), "low": np.nan, "high": np.nan, "p": np.nan}
    svg = draw_svg(forest.draw_forest(rows, mean, ["c"]))
    assert all(f">{name}</text>" in svg for name in [*names, "mean of 40"])
