"""What the paper says beside what was measured, in words: each verdict, and rows that lack things."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest

from tsfmscope.report.page import verdicts
from tsfmscope.report.page.page import render
from tsfmscope.report.page.summary import summarise
from tsfmscope.report.tables import ReportTables

ROW: dict[str, Any] = {
    "claim": "Within a synthetic data set, more isotropic models have less error",
    "source": "section 5.1",
    "model": None,
    "dataset": None,
    "condition": None,
    "quantity": "spearman",
    "published": float("nan"),
    "published_text": "< 0",
    "measured": 0.12,
    "low": -0.1,
    "high": 0.31,
    "n": 12,
    "p": 0.2,
    "comparable": True,
    "figure": "isotropy Fig. 3",
    "verdict": "undecided",
    "why": "p is above 0.05",
}
SAYS = "Shelim et al. 2025 (section 5.1): within a synthetic data set, more isotropic models have less error"
RHO = "(mean ρ of isotropy with error < 0)"


def frame(*rows: dict[str, Any]) -> pd.DataFrame:
    return pd.DataFrame([ROW | row for row in rows]).reindex(columns=verdicts.COLUMNS)


def test_an_undecided_claim_gives_its_reason() -> None:
    assert verdicts.describe_claim(ROW) == (
        f"{SAYS} {RHO}. Here: 0.12 (95 % interval −0.1 to 0.31; n = 12; p = 0.2): undecided, because p is above 0.05."
    )


@pytest.mark.parametrize(
    ("verdict", "measured", "low", "high"), [("agrees", -0.4, -0.6, -0.2), ("differs", 0.4, 0.2, 0.6)]
)
def test_a_decided_claim_says_which_way(verdict: str, measured: float, low: float, high: float) -> None:
    row = ROW | {"measured": measured, "low": low, "high": high, "p": 0.001, "why": None, "verdict": verdict}
    text = verdicts.describe_claim(row)
    assert text.endswith(f"; n = 12; p = 0.001): {verdict}.")
    assert f"Here: {'−' if measured < 0 else ''}0.4 (95 % interval" in text


def test_what_cannot_be_compared_says_why_and_where() -> None:
    row = ROW | {"verdict": "not comparable", "why": "a small checkpoint of ours", "model": "m", "condition": "c"}
    assert "Here, m, c,: " not in verdicts.describe_claim(row)
    assert "Here (m, c): 0.12" in verdicts.describe_claim(row)
    assert verdicts.describe_claim(row).endswith(": not comparable, because a small checkpoint of ours.")


@pytest.mark.parametrize("missing", [None, float("nan"), pd.NA])
def test_what_was_not_measured_is_said_and_shows_no_nan(missing: Any) -> None:
    lacking = dict.fromkeys(("measured", "low", "high", "n", "p"), missing)
    text = verdicts.describe_claim(ROW | lacking | {"why": "not measured"})
    assert text == f"{SAYS} {RHO}. Here: nothing measured: undecided, because not measured."
    bare = verdicts.describe_claim(ROW | lacking | {"source": missing, "published_text": missing, "why": missing})
    assert bare.endswith("have less error. Here: nothing measured: undecided.") and bare.startswith(
        "Shelim et al. 2025: within"
    )


@pytest.mark.parametrize("bad", [None, "", "yes", "Agrees"])
def test_a_verdict_that_is_none_is_refused(bad: Any) -> None:
    with pytest.raises(ValueError, match="expected one of agrees, differs, no effect, undecided, not comparable"):
        verdicts.describe_claim(ROW | {"verdict": bad})


def test_claims_are_sentences_and_numbers_are_rows() -> None:
    lacking = dict.fromkeys(("measured", "low", "high", "n", "p"))
    number = lacking | {"published": 4.0, "published_text": "4", "comparable": False, "source": "Table 1"}
    layers = [
        number | {"claim": f"d(0.8) of chronos-t5 on finance-1, layer {n}", "verdict": "not measured"}
        for n in range(1, 13)
    ]
    layers[0] |= {"measured": 3.0, "verdict": "not comparable", "note": "no interval: one covariance matrix"}
    cell = number | {"claim": "nmse of chronos-t5 on seasonality-1", "quantity": "nmse", "published": 0.0000066}
    cell |= {"published_text": "0.0000066", "measured": 0.15, "low": 0.1, "high": 0.2, "verdict": "not comparable"}
    why = "a small checkpoint of ours; a stand-in for the data: 2012-2014, not 2002-2015"
    claims = [{"verdict": verdict} for verdict in ("undecided", "agrees", "differs", "not comparable")]
    published = frame(*claims, *layers, cell | {"why": why})
    said = verdicts.describe_claims(published)
    assert [sentence.verdict for sentence in said] == ["undecided", "agrees", "differs", "not-comparable"]
    numbers = verdicts.tabulate_numbers(published)
    assert numbers["published"].tolist() == 12 * ["4"] + ["0.0000066"]  # as printed, and not 6.6e-06
    assert numbers["number"].tolist()[11:] == [
        "d(0.8) of chronos-t5 on finance-1, layer 12",
        "NMSE of chronos-t5 on seasonality-1",
    ]
    assert numbers["ours"].dropna().tolist() == [3.0, 0.15]
    assert numbers["interval"].dropna().tolist() == ["none: one covariance matrix", "0.1 to 0.2"]
    assert numbers["verdict"].tolist() == ["not comparable", *11 * ["not measured"], "not comparable"]
    assert numbers["why"].tolist()[-1] == "a small checkpoint of ours; a stand-in for the data"  # the CSV has all of it
    assert "n" not in numbers.columns


def test_the_line_counts_what_can_be_compared() -> None:
    ours = {"published": 1.0, "comparable": False, "verdict": "not comparable", "why": "a small checkpoint of ours"}
    data = ours | {"why": "a small checkpoint of ours; a stand-in for the data: x; y: z"}
    assert verdicts.count_verdicts(frame(ours, data, {})) == (
        "0 of 2 printed numbers next to ours can be compared: "
        "a small checkpoint of ours (2), a stand-in for the data (1)."
    )
    agrees = {"published": 1.0, "comparable": True, "verdict": "agrees", "why": None}
    assert verdicts.count_verdicts(frame(agrees)) == "1 of 1 printed number next to ours can be compared: 1 agrees."
    both = frame(agrees, agrees, agrees | {"verdict": "differs"}, agrees | {"verdict": "undecided"}, ours)
    assert verdicts.count_verdicts(both) == (
        "4 of 5 printed numbers next to ours can be compared: 2 agree, 1 differs, 1 is undecided. "
        "The others: a small checkpoint of ours (1)."
    )


def test_the_line_says_how_many_were_not_measured() -> None:
    none = {"published": 1.0, "comparable": False, "verdict": "not measured", "why": "the model has 4 layers"}
    agrees = {"published": 1.0, "comparable": True, "verdict": "agrees", "why": None}
    assert verdicts.count_verdicts(frame(none, none)) == "2 printed numbers were not measured here."
    assert verdicts.count_verdicts(frame(agrees, none)) == (
        "1 of 1 printed number next to ours can be compared: 1 agrees. 1 printed number was not measured here."
    )


def test_without_printed_numbers_there_is_no_line_and_no_table() -> None:
    assert verdicts.count_verdicts(frame({})) == ""
    assert verdicts.count_verdicts(frame({}).iloc[:0]) == ""
    assert len(verdicts.tabulate_numbers(frame({}))) == 0
    assert verdicts.describe_claims(frame({}).iloc[:0]) == []


def test_the_table_names_figure_number_verdict_and_reason(tables: ReportTables) -> None:
    frame = tables.printed.frame.copy()
    measured = {"model": "chronos-t5-nano", "measured": 0.9, "note": "no interval: one covariance matrix"}
    measured |= {"verdict": "not comparable", "why": "a small checkpoint of ours"}
    frame.loc[0, list(measured)] = list(measured.values())
    (listing,) = verdicts.build_section(replace(tables.printed, frame=frame)).tables
    assert listing.table.heads == ["figure", "number", "model", "published", "ours", "interval", "verdict", "why"]
    assert listing.table.filtered and listing.table.total == len(tables.printed.frame) == 163
    first = [cell.text for cell in listing.table.rows[0]]
    assert first[:2] == ["isotropy Fig. 2", "variance in 3 components of lag-llama on finance-1"]
    assert first[2:6] == ["chronos-t5-nano", "0.94", "0.9", "none: one covariance matrix"]
    assert first[6:] == ["not comparable", "a small checkpoint of ours"]
    assert {row[-2].kind for row in listing.table.rows} == {"not-comparable", "not-measured"}


def test_what_to_run_stands_once_with_how_many_numbers_it_is_for(tables: ReportTables) -> None:
    assert verdicts.describe_runs(["b", "a", "a", "c"]) == [
        "Runs that would make numbers comparable, with their count: “a” (2), “b” (1), “c” (1)."
    ]
    assert verdicts.describe_runs([]) == []
    runs = tables.printed.frame["run"].value_counts()
    assert f"“{runs.index[0]}” ({runs.iloc[0]})" in verdicts.build_section(tables.printed).notes[-1]


def test_a_verdict_is_a_class_of_its_cell_in_the_page(tables: ReportTables) -> None:
    frame = tables.printed.frame
    verdicts = ["agrees", "differs", "undecided", *["not measured"] * (len(frame) - 3)]
    page = render(replace(tables, printed=replace(tables.printed, frame=frame.assign(verdict=verdicts))))
    start = page.index('id="printed-table"')
    part = page[start : page.index("</table>", start)]
    for verdict, count in (("agrees", 1), ("differs", 1), ("undecided", 1), ("not measured", len(frame) - 3)):
        assert part.count(f'<td class="verdict {verdict.replace(" ", "-")}">{verdict}</td>') == count


def test_without_rows_the_section_says_so(tables: ReportTables) -> None:
    found = verdicts.build_section(replace(tables.printed, frame=tables.printed.frame.iloc[:0]))
    assert (found.rows, found.tables, found.notes) == (0, (), ())


def test_a_run_of_ones_own_studies_does_not_list_what_papers_print(tables: ReportTables) -> None:
    """163 rows, not measured, stood first in the report of a study that is of no figure."""
    own = [replace(study, figure=None) for study in tables.studies]
    frame = tables.printed.frame
    measured = replace(tables.printed, frame=frame.assign(verdict="differs"))
    assert verdicts.is_shown(tables), "a study is of a figure"
    assert verdicts.is_shown(replace(tables, studies=own, printed=measured)), "numbers were measured"
    whole, bare = (replace(tables, studies=studies) for studies in (tables.studies, own))
    assert ['id="printed-table"' in render(one) for one in (whole, bare)] == [True, False]
    told = ["163 printed numbers were not measured" in str(summarise(one)) for one in (whole, bare)]
    assert told == [True, False]
