"""A study's section: the table in the paper's layout, captions that say what is meant."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from tests.tasks.report.answers import with_rows
from tsfmscope.tasks.report.page import page, studies
from tsfmscope.tasks.report.page.html_table import NOTHING, build_table
from tsfmscope.tasks.report.plots.dimension import paper_table
from tsfmscope.tasks.report.tables import ReportTables, StudyTables


def study(tables: ReportTables, picture: str) -> StudyTables:
    return next(one for one in tables.studies if one.plot == picture)


def test_the_papers_row_of_table_1_stands_under_its_familys_ours(tables: ReportTables) -> None:
    one = study(tables, "dimension")
    frame = paper_table(one.answers["layers"].frame, one.published.frame)
    assert list(frame.columns) == ["whose", "model", "stack", *map(str, range(1, 13)), "n′"]
    assert frame["whose"].tolist() == ["ours", "ours", "ours", "ours", "the paper"]
    printed = frame.iloc[-1]
    assert printed["model"] == "chronos-t5"
    assert (printed[[str(layer) for layer in range(1, 13)]] == 4).all()
    layers = one.answers["layers"].frame
    for row in frame[frame["whose"] == "ours"].itertuples(index=False):
        ours = layers[(layers["model"] == row.model) & (layers["stack"] == row.stack)]
        assert [row[3], row[4], row[5], row[6]] == ours[(ours["layer"] > 0) & ~ours["normed"]]["median"].tolist()
        assert row[-1] == ours[ours["normed"]]["median"].item()
    assert build_table(frame).rows[0][-2].text == NOTHING  # four layers have no twelfth


def test_table_1_without_printed_numbers_is_ours_alone(tables: ReportTables) -> None:
    one = study(tables, "dimension")
    frame = paper_table(one.answers["layers"].frame, one.published.frame.iloc[:0])
    assert set(frame["whose"]) == {"ours"}
    assert list(frame.columns) == ["whose", "model", "stack", "1", "2", "3", "4", "n′"]


@pytest.mark.parametrize(
    ("picture", "text"),
    [
        ("domains", "Filled: Dataset 1 of the domain; open: Dataset 2"),
        ("conditions", "Filled: context-500; then context-100"),
        ("dimension", "Median over data sets and conditions"),
        ("islands", "320 of 2,048 tokens; the three components explain"),
    ],
)
def test_a_caption_says_what_the_picture_means(picture: str, text: str, tables: ReportTables) -> None:
    drawn = studies.draw_figures(study(tables, picture), page.order_models(tables))
    assert drawn
    assert all(text in one.caption for one in drawn)


@pytest.mark.parametrize(("figure", "letters"), [("isotropy Fig. 7", ["b", "c"]), (None, ["a", "b"])])
def test_only_a_figure_of_the_paper_has_its_letters(
    figure: str | None, letters: list[str], tables: ReportTables
) -> None:
    one = study(tables, "domains")
    frame = one.answers["points"].frame[one.answers["points"].frame["domain"].isin(["nature", "finance"])]
    own = replace(with_rows(one, "points", frame), figure=figure)
    (drawn,) = studies.draw_figures(own, page.order_models(tables))
    assert [note.text[3] for note in drawn.figure.layout.annotations] == letters
    assert f"{letters[0]} · nature, {letters[1]} · finance" in drawn.alt


def test_compressed_models_are_drawn_beside_their_base_a_picture_a_base(tables: ReportTables) -> None:
    one = study(tables, "dimension")
    frame = one.answers["layers"].frame
    base = frame["model"].iloc[0]
    made = frame[frame["model"] == base].assign(model=f"{base}@joint-0.5")
    with_made = with_rows(one, "layers", pd.concat((frame, made)))
    drawn = studies.draw_figures(with_made, page.order_models(tables))
    assert [picture.title for picture in drawn] == sorted(frame["model"].unique())
    (alone,) = (picture for picture in drawn if picture.title == base)
    assert {str(trace.name).partition(" ")[0] for trace in alone.figure.data} == {base, f"{base}@joint-0.5"}


def test_data_sets_are_named_where_the_domain_does_not_name_them_and_stand_ins_are_marked(tables: ReportTables) -> None:
    one = study(tables, "domains")
    frame = one.answers["points"].frame
    frame = frame.assign(stands_in_for=["other data" if name == "nile" else None for name in frame["dataset"]])
    (drawn,) = studies.draw_figures(with_rows(one, "points", frame), page.order_models(tables))
    assert "finance 1 exchange_rate, 2 nn5_weekly" in drawn.caption
    assert "nile (a stand-in)" in drawn.caption and "elnino (a stand-in)" not in drawn.caption
    assert "linear-1" not in drawn.caption
    assert "4 of 68 points are not positive" in drawn.caption


@pytest.mark.parametrize("picture", ["domains", "conditions", "dimension", "islands", "none"])
def test_a_study_without_rows_draws_nothing(picture: str, tables: ReportTables) -> None:
    one = study(tables, picture)
    bare = replace(one, answers={q: replace(a, frame=a.frame.iloc[:0]) for q, a in one.answers.items()})
    assert studies.draw_figures(bare, page.order_models(tables)) == ()


def test_only_what_differs_among_islands_stands_in_their_titles(tables: ReportTables) -> None:
    one = study(tables, "islands")
    titles = [drawn.title for drawn in studies.draw_figures(one, ())]
    assert all("encoder 4: " in title and "non-linear-1" not in title for title in titles)
    twice = pd.concat([one.answers["islands"].frame, one.answers["islands"].frame.assign(dataset="non-linear-2")])
    titles = [drawn.title for drawn in studies.draw_figures(with_rows(one, "islands", twice), ())]
    assert len(titles) == 4 and sum("non-linear-2" in title for title in titles) == 2


@pytest.mark.parametrize("order", [("context-500", "context-100"), ("context-100", "context-500")])
def test_islands_stand_in_the_studys_order_of_conditions(order: tuple[str, ...], tables: ReportTables) -> None:
    one = study(tables, "islands")
    frame = pd.concat([one.answers["islands"].frame, one.answers["islands"].frame.assign(condition="context-100")])
    drawn = studies.draw_figures(replace(with_rows(one, "islands", frame), conditions=order), ())
    assert [drawing.title.split(", ")[-1].split(":")[0] for drawing in drawn] == [*order, *order]
