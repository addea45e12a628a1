"""Sentences on the questions of Yu et al. 2026, compared with numbers counted by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import store
from tsfmscope.report.page import rank_summary, verdicts
from tsfmscope.report.tables import Answer, ReportTables, StudyTables


def inputs(*lines: tuple[str, str, list[int]], epsilon: float = 0.01) -> pd.DataFrame:
    """Ranks of 100 at most, a line a (model, stack): one number a layer."""
    rows = [
        {"model": model, "modality": "series", "stack": stack, "layer": layer, "epsilon": epsilon, "full_rank": 100}
        | {"below_noise_floor": False, "rank": float(rank), "low": rank, "high": rank, "n": 1}
        for model, stack, ranks in lines
        for layer, rank in enumerate(ranks)
    ]
    return pd.DataFrame(rows)


def study(tables: ReportTables, *, claims: pd.DataFrame | None = None, **answers: pd.DataFrame) -> StudyTables:
    one = tables.studies[0]
    published = one.published.frame.iloc[:0] if claims is None else claims
    named = {name: Answer(name, "select 1", frame) for name, frame in answers.items()}
    return replace(one, answers=named, published=replace(one.published, frame=published))


def claim(verdict: str, model: str | None) -> dict[str, Any]:
    row = dict.fromkeys(verdicts.COLUMNS)
    return row | {"claim": rank_summary.GROWTH_CLAIM, "model": model, "verdict": verdict, "quantity": "mean"}


LINES = (("a", "encoder", [90, 10, 30]), ("a", "decoder", [10, 99, 50]), ("b", "decoder", [20, 20]), ("c", "x", [7]))


def test_first_and_last_layer_are_medians_over_stacks_of_two_layers_or_more() -> None:
    found = rank_summary.compare_ends(pd.concat([inputs(*LINES), inputs(("a", "encoder", [1, 1, 99]), epsilon=0.1)]))
    assert found == rank_summary.Ends(first=0.2, last=0.3, rises=1, stacks=3, models=2)  # c has one layer alone
    shuffled = inputs(*LINES).sample(frac=1, random_state=3)
    assert rank_summary.compare_ends(shuffled) == found
    assert rank_summary.compare_ends(inputs(("c", "x", [7]))) is None


def test_a_rank_below_roundings_floor_is_left_out() -> None:
    frame = inputs(*LINES)
    frame.loc[(frame["stack"] == "encoder") & (frame["layer"] == 2), "below_noise_floor"] = True
    found = rank_summary.compare_ends(frame)
    assert found is not None and found.last == 0.2  # 10, 50 and 20


def test_growth_is_told_of_the_study_with_most_models(tables: ReportTables) -> None:
    claims = pd.DataFrame([claim("agrees", "a"), claim("agrees", "b"), claim("differs", "c"), claim("undecided", None)])
    wide = study(tables, inputs=inputs(*LINES), weights=inputs(("a", "encoder", [80, 40])), claims=claims)
    narrow = study(tables, inputs=inputs(("z", "encoder", [1, 2])))
    told = rank_summary.describe_growth([narrow, wide])
    assert told[0].endswith("grows with depth in 2 of 3, does not in 1, and is undecided in 0.")
    assert "has 20 % of the full rank, the output of the last 30 % (medians over 3 stacks of 2 models" in told[1]
    assert told[1].endswith("It rises in 1 of 3.")
    assert "goes from 80 % to 40 % of the full rank, and rises in 0 of 1 stacks." in told[2]
    assert rank_summary.describe_growth([study(tables)]) == []
    over = claim("no effect", None) | {"condition": "over families", "n": 8, "measured": -0.01, "p": 0.4}
    told = rank_summary.describe_growth([replace(wide, published=replace(wide.published, frame=pd.DataFrame([over])))])
    assert told[0].startswith("Over 8 families, the slope of the rank of layer inputs along depth is −0.01 of the full")
    assert told[0].endswith("(n = 8; p = 0.4): the claim that it grows shows no effect.")


def test_the_claim_is_worded_as_in_the_file_of_claims() -> None:
    claims = Path(store.__file__).parent.joinpath("published/printed_claims.csv").read_text()
    assert f",{rank_summary.GROWTH_CLAIM}," in claims


@pytest.mark.parametrize(("svd", "kept"), [(1.05, "2 of 2 methods"), (1.06, "1 of 2 methods")])
def test_what_a_quarter_of_the_attention_costs_is_told_by_method(tables: ReportTables, svd: float, kept: str) -> None:
    rows = [("m@svd-8", "svd", 0.125, 9.0), ("m@svd-4", "svd", 0.25, svd), ("m@svd-2", "svd", 0.5, 0.9)]
    rows += [("m@joint-4", "joint", 0.25, 1.0), ("m@none", "activation-aware", 0.25, None)]
    frame = pd.DataFrame(rows, columns=["model", "method", "size", "wql_ratio"])
    frame = frame.assign(whose="measured", family="f", rank_ratio=0.1, mase_ratio=1.0, overlap=1.0, lppl=1.0)
    printed = frame.assign(whose="published", wql_ratio=0.01)
    (told,) = rank_summary.describe_compression([study(tables, compressed=pd.concat([frame, printed]))])
    assert told.startswith("With 25 % of the attention's parameters left, the WQL of m relative to the original is")
    assert f"1 by joint, {svd} by svd; {kept} stay within 5 %." in told
    assert rank_summary.describe_compression([study(tables, compressed=printed)]) == []  # none of ours


def test_theorems_are_counted_as_printed_and_repaired(tables: ReportTables) -> None:
    rows = tables.theory_violations.frame
    three = rows[rows["experiment"].isin(["Theorem 2", "Theorem 3.2"])]
    (told,) = rank_summary.describe_bounds(replace(tables, theory_violations=Answer("bounds", "select 1", three)))
    assert told == (
        "Of the paper's 2 bounds, 1 held as printed at every one of 100 random instances; 1 failed at some. "
        "Of 1 repaired bounds, 1 held at all."
    )
