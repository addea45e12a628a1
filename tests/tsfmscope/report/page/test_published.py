"""The section of printed numbers: in the order of the figures, verdicts as words for CSS, and what to run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tsfmscope.report.page import published
from tsfmscope.report.page.page import render
from tsfmscope.report.page.summary import summarise
from tsfmscope.report.tables import ReportTables


def test_the_table_names_figure_number_verdict_and_reason(tables: ReportTables) -> None:
    frame = tables.printed.frame.copy()
    measured = {"model": "chronos-t5-nano", "measured": 0.9, "note": "no interval: one covariance matrix"}
    measured |= {"verdict": "not comparable", "why": "a small checkpoint of ours"}
    frame.loc[0, list(measured)] = list(measured.values())
    (listing,) = published.build_section(replace(tables.printed, frame=frame)).tables
    assert listing.table.heads == ["figure", "number", "model", "published", "ours", "interval", "verdict", "why"]
    assert listing.table.filtered and listing.table.total == len(tables.printed.frame) == 163
    first = [cell.text for cell in listing.table.rows[0]]
    assert first[:2] == ["isotropy Fig. 2", "variance in 3 components of lag-llama on finance-1"]
    assert first[2:6] == ["chronos-t5-nano", "0.94", "0.9", "none: one covariance matrix"]
    assert first[6:] == ["not comparable", "a small checkpoint of ours"]
    assert {row[-2].kind for row in listing.table.rows} == {"not-comparable", "not-measured"}


def test_what_to_run_stands_once_with_how_many_numbers_it_is_for(tables: ReportTables) -> None:
    assert published.describe_runs(["b", "a", "a", "c"]) == [
        "Runs that would make numbers comparable, with their count: “a” (2), “b” (1), “c” (1)."
    ]
    assert published.describe_runs([]) == []
    runs = tables.printed.frame["run"].value_counts()
    assert f"“{runs.index[0]}” ({runs.iloc[0]})" in published.build_section(tables.printed).notes[-1]


def test_a_verdict_is_a_class_of_its_cell_in_the_page(tables: ReportTables) -> None:
    frame = tables.printed.frame
    verdicts = ["agrees", "differs", "undecided", *["not measured"] * (len(frame) - 3)]
    page = render(replace(tables, printed=replace(tables.printed, frame=frame.assign(verdict=verdicts))))
    start = page.index('id="printed-table"')
    part = page[start : page.index("</table>", start)]
    for verdict, count in (("agrees", 1), ("differs", 1), ("undecided", 1), ("not measured", len(frame) - 3)):
        assert part.count(f'<td class="verdict {verdict.replace(" ", "-")}">{verdict}</td>') == count


def test_without_rows_the_section_says_so(tables: ReportTables) -> None:
    found = published.build_section(replace(tables.printed, frame=tables.printed.frame.iloc[:0]))
    assert (found.rows, found.tables, found.notes) == (0, (), ())


def test_a_lacking_column_is_named(tables: ReportTables) -> None:
    broken = replace(tables.printed, frame=tables.printed.frame.drop(columns="run"))
    with pytest.raises(ValueError, match="expected columns run, found"):
        published.build_section(broken)


def test_a_run_of_ones_own_studies_does_not_list_what_papers_print(tables: ReportTables) -> None:
    """163 rows, not measured, stood first in the report of a study that is of no figure."""
    own = [replace(study, figure=None) for study in tables.studies]
    frame = tables.printed.frame
    measured = replace(tables.printed, frame=frame.assign(verdict="differs"))
    assert published.is_shown(tables), "a study is of a figure"
    assert published.is_shown(replace(tables, studies=own, printed=measured)), "numbers were measured"
    whole, bare = (replace(tables, studies=studies) for studies in (tables.studies, own))
    assert ['id="printed-table"' in render(one) for one in (whole, bare)] == [True, False]
    told = ["163 printed numbers were not measured" in str(summarise(one)) for one in (whole, bare)]
    assert told == [True, False]
