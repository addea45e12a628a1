"""A study's section: the table in the paper's layout, and captions that describe the figures."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from tests.tsfmscope.report import recorded
from tests.tsfmscope.report.drawn import read_titles
from tests.tsfmscope.report.recorded import find_study, with_rows
from tsfmscope.report.page import studies
from tsfmscope.report.page.sections import NOTHING, Figure, build_table
from tsfmscope.report.plots.dimension import paper_table
from tsfmscope.report.tables import ReportTables, order_models


def test_the_papers_row_of_table_1_stands_under_its_familys_ours() -> None:
    table_1 = "update studies set figure = 'isotropy Table 1' where study = 'isotropy-layers'"
    with recorded.build(table_1) as changed:
        study = recorded.answer_study(changed, "isotropy-layers", "dimension")
    layers = study.answers["layers"].frame
    frame = paper_table(layers, study.published.frame)
    assert list(frame.columns) == ["whose", "model", "stack", *map(str, range(1, 13)), "n′"]
    assert frame["whose"].tolist() == ["ours", "ours", "the paper", "ours", "ours", "ours", "ours", "the paper"]
    printed = frame[frame["whose"] == "the paper"]
    assert printed["model"].tolist() == ["chronos-bolt", "chronos-t5"]
    assert printed["1"].tolist() == printed["12"].tolist() == [1, 4]
    for row in frame[frame["whose"] == "ours"].itertuples(index=False):
        ours = layers[(layers["model"] == row.model) & (layers["stack"] == row.stack)]
        assert [row[3], row[4], row[5], row[6]] == ours[(ours["layer"] > 0) & ~ours["normed"]]["median"].tolist()
        assert row[-1] == ours[ours["normed"]]["median"].item()
    assert build_table(frame).rows[0][-2].text == NOTHING  # four layers have no twelfth


def test_table_1_without_printed_numbers_is_ours_alone(tables: ReportTables) -> None:
    study = find_study(tables, "dimension")
    frame = paper_table(study.answers["layers"].frame, study.published.frame)
    assert set(frame["whose"]) == {"ours"}
    assert list(frame.columns) == ["whose", "model", "stack", "1", "2", "3", "4", "n′"]


@pytest.mark.parametrize(("figure", "letters"), [("isotropy Fig. 7", ["b", "c"]), (None, ["a", "b"])])
def test_only_a_figure_of_the_paper_has_its_letters(
    figure: str | None, letters: list[str], tables: ReportTables
) -> None:
    study = find_study(tables, "domains")
    frame = study.answers["points"].frame
    frame = frame.assign(domain=frame["dataset"].map({"linear-2": "nature", "macrodata": "finance"})).dropna(
        subset="domain"
    )
    own = replace(with_rows(study, "points", frame), figure=figure)
    (drawn,) = studies.draw_figures(own, order_models(tables))
    assert [title[0] for title in read_titles(drawn.chart)] == letters
    assert f"{letters[0]} · nature, {letters[1]} · finance" in drawn.alt


def test_models_with_compressed_ones_are_drawn_by_compression_and_the_others_by_layer(tables: ReportTables) -> None:
    study = find_study(tables, "dimension")
    drawn = studies.draw_figures(study, order_models(tables))
    assert [figure.title for figure in drawn] == ["By layer", "By compression"]
    panels = [read_titles(figure.chart) for figure in drawn]
    assert panels == [["chronos-bolt-nano"], ["chronos-t5-nano\nencoder", "chronos-t5-nano\ndecoder"]]
    frame = study.answers["layers"].frame
    dense, compressed = (
        frame[frame["model"] == name].sort_values(["stack", "layer", "normed"])["median"].tolist()
        for name in ("chronos-t5-nano", "chronos-t5-nano@aware-0.5")
    )
    changes = [abs(one - other) for one, other in zip(dense, compressed, strict=True)]
    assert f"{sum(map(bool, changes))} of {len(changes)} medians of compressed models differ" in drawn[1].caption


def test_data_sets_are_named_where_the_domain_does_not_name_them_and_stand_ins_are_marked(tables: ReportTables) -> None:
    study = find_study(tables, "domains")
    frame = study.answers["points"].frame
    frame = frame.assign(stands_in_for=["other data" if name == "macrodata" else None for name in frame["dataset"]])
    frame.loc[0, "zeta_adjusted"] = 0.0
    (drawn,) = studies.draw_figures(with_rows(study, "points", frame), order_models(tables))
    assert "economics 1 macrodata (a stand-in)" in drawn.caption
    assert "linear-2" not in drawn.caption
    assert "1 of 12 points" in drawn.caption and "not positive" in drawn.caption


def read_panels(figures: tuple[Figure, ...]) -> list[str]:
    """Return the titles of the matrices of states of the single figure."""
    (figure,) = figures
    return [title for title in read_titles(figure.chart) if title]


def test_only_what_differs_among_islands_stands_in_their_titles(tables: ReportTables) -> None:
    study = find_study(tables, "islands")
    frame = study.answers["islands"].frame
    (drawn,) = studies.draw_figures(study, ())
    titles = read_panels((drawn,))
    assert len(titles) == 2 and all("coder layer 2, " in text and "linear-2" not in text for text in titles)
    for model, text in zip(sorted(frame["model"].unique()), titles, strict=True):
        explained = frame[frame["model"] == model]["explained"].iloc[0]
        assert text.startswith(model) and f"{100 * explained:.0f} % of the variance" in text
    assert "of linear-2 under noisy (" in drawn.caption
    twice = with_rows(study, "islands", pd.concat([frame, frame.assign(dataset="other")]))
    titles = read_panels(studies.draw_figures(twice, ()))
    assert len(titles) == 4 and sum("other" in text for text in titles) == 2
    assert "a token under noisy (" in studies.draw_figures(twice, ())[0].caption


@pytest.mark.parametrize("order", [("noisy", "context-128"), ("context-128", "noisy")])
def test_islands_stand_in_the_studys_order_of_conditions(order: tuple[str, ...], tables: ReportTables) -> None:
    study = find_study(tables, "islands")
    frame = study.answers["islands"].frame
    both = with_rows(study, "islands", pd.concat([frame, frame.assign(condition="context-128")]))
    titles = read_panels(studies.draw_figures(replace(both, conditions=order), ()))
    assert [text.split("\n")[0].split(", ")[-1] for text in titles] == [*order, *order]
