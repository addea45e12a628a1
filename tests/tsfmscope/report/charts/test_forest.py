"""The forest plot shows the correlations that scipy computes from the single scores, and their mean."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import numpy as np
import plotly.graph_objects as go
import pytest
from scipy import stats

from tests.tsfmscope.report import recorded
from tests.tsfmscope.report.recorded import answer_study, copy_rows, with_rows
from tsfmscope.report.page import studies
from tsfmscope.report.page.sections import Figure
from tsfmscope.report.render.mpl_render import render
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
    "update inference set low = -0.45, high = 0.35, p = 0.25, p_smallest = 0.002 where answer = 'correlation' "
    f"and study = '{STUDY}' and measure = '{ISOTROPY}' and \"grouping\" = 'per_dataset'",
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


def read_marks(figure: go.Figure) -> dict[tuple[str, str], float]:
    """Return (data set, condition) -> the drawn ρ."""
    traces = [trace for trace in figure.data if trace.customdata is not None]
    pairs = [(row, x) for trace in traces for row, x in zip(trace.customdata, trace.x, strict=True)]
    found = {(row[0], row[1]): x for row, x in pairs}
    assert len(found) == len(pairs)
    return found


def read_diamond(figure: go.Figure) -> go.Scatter:
    (diamond,) = (trace for trace in figure.data if trace.name == "mean")
    return diamond


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
    figure = draw(study).figure
    assert read_marks(figure) == pytest.approx(wanted)
    assert len({round(x, 6) for x in wanted.values()}) > 2  # the marks differ, so that mistaken rows would show
    assert read_diamond(figure).x[0] == pytest.approx(np.mean(list(wanted.values())))


def test_the_rho_under_a_panel_of_domains_is_the_same(models: duckdb.DuckDBPyConnection, study: StudyTables) -> None:
    points = answer_study(models, STUDY, "domains").answers["points"].frame
    found = {(row.dataset, row.condition): row.rho_corrected for row in points.itertuples()}
    assert found == pytest.approx(read_marks(draw(study).figure))
    for key, part in points.groupby(["dataset", "condition"]):
        rho = stats.spearmanr(-part["zeta_adjusted"].abs(), np.log(part["nmse"])).statistic
        assert part["rho_printed"].tolist() == pytest.approx([rho] * 6), key


def test_the_mean_has_its_interval_and_the_words_the_same_numbers(study: StudyTables) -> None:
    drawn = draw(study)
    wide = [trace for trace in drawn.figure.data if trace.line.width == 3]
    assert [list(trace.x) for trace in wide] == [[-0.45, 0.35]]
    (headline,) = drawn.figure.layout.annotations
    rho = f"{read_diamond(drawn.figure).x[0]:.2f}".replace("-", "−")
    assert headline.text == f"<b>Mean ρ = {rho} (95 % interval −0.45 to 0.35)</b><br>p = 0.25, permuting models"
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
    figure = draw(study).figure
    frame = study.answers["dataset_correlations"].frame
    means = frame.groupby("dataset")["spearman"].mean().sort_values(ascending=False)
    axis = figure.layout.yaxis
    assert list(axis.ticktext) == ["<b>mean of 6</b>", *means.index]
    heights = dict(zip(axis.ticktext, axis.tickvals, strict=True))
    for trace in (trace for trace in figure.data if trace.customdata is not None):
        for row, y in zip(trace.customdata, trace.y, strict=True):
            assert abs(y - heights[row[0]]) < 0.5
    assert axis.range[0] < 0 and axis.range[1] > len(means)


def test_conditions_are_told_apart_only_where_there_are_several(study: StudyTables) -> None:
    both = draw(study)
    assert [t.name for t in both.figure.data if t.showlegend is not False] == ["context-128", "noisy"]
    assert "Filled: context-128; open: noisy." in both.caption
    rows = study.answers["dataset_correlations"].frame
    one = draw(with_rows(study, "dataset_correlations", rows[rows["condition"] == "noisy"]))
    assert not [t.name for t in one.figure.data if t.showlegend is not False]
    assert "Filled" not in one.caption


def test_a_data_set_with_an_interval_has_a_whisker(study: StudyTables) -> None:
    rows = study.answers["dataset_correlations"].frame.copy()
    assert rows["low"].isna().all()  # that of both conditions is not that of one
    rows.loc[0, ["low", "high"]] = [-0.9, 0.1]
    lines = [list(t.x) for t in draw(with_rows(study, "dataset_correlations", rows)).figure.data if t.mode == "lines"]
    assert lines.count([-0.9, 0.1]) == 1


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
    assert not [trace for trace in bare.figure.data if trace.line.width == 3]
    assert "without an interval" in bare.caption and "at least" not in bare.caption
    for rows in (mean.assign(spearman=missing), mean.iloc[:0]):
        none = draw(with_rows(study, "mean_correlation", rows))
        assert not [trace for trace in none.figure.data if trace.name == "mean"]
        assert "The mean is undefined." in none.alt and "Diamond" not in none.caption


def test_the_still_picture_is_one_column_wide(study: StudyTables) -> None:
    figure = draw(study)
    text = render([("", figure.figure)])["svg"].decode()
    assert f'width="{4.05 * 72:.6g}pt"' in text
