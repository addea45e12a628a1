"""Tests on ranks (view `rank_tests`) as sentences and as a table of a study's section."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tsfmscope.report.charts.style import format_power
from tsfmscope.report.page import verdicts
from tsfmscope.report.tables import StudyTables, require

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("measure", "grouping", "block", "statistic", "n", "estimate", "low", "high", "p", "reason")
# Suffix of the measures at the tolerance that sentences report; the rows contain 0.1 and 0.001 too.
REPORTED_TOLERANCE = "@0.01"
# Quantities of the view `rank_tests`, in words.
QUANTITIES = {
    "embedding": "rank of the embedded tokens",
    "attention": "rank of the attention matrices",
    "input slope": "growth of the inputs' rank from the first layer to the last",
    "attention slope": "growth of the attention matrices' rank from the first layer to the last",
    "constant slope": "growth of the inputs' rank for a constant series",
}


def describe_contrasts(study: StudyTables) -> list[str]:
    """Return one sentence per test of time series against other data that no claim of the paper covers."""
    claimed = study.published.frame
    differences = claimed.loc[claimed["quantity"] == "difference", "measured"].dropna().tolist()
    return [
        _describe_contrast(row)
        for row in _reported(study, "modality").to_dict("records")
        if not any(math.isclose(row["estimate"], difference, rel_tol=1e-6) for difference in differences)
    ]


def tabulate_by_model(study: StudyTables) -> pd.DataFrame | None:
    """Return a table of the tests of single models.

    None if the study has no tests, or if no claim is folded (see `verdicts.group_claims`): the claims' sentences,
    one per model, then report every test.
    """
    if study.rank_tests is None or not verdicts.group_claims(study.published.frame):
        return None
    rows = _reported(study, "model")
    quantity = [_name_quantity(measure) for measure in rows["measure"]]
    table = rows.assign(model=rows["block"], quantity=quantity).rename(columns={"estimate": "change of the share"})
    columns = ["model", "quantity", "change of the share", "low", "high", "n", "p", "reason"]
    return table[columns].dropna(axis=1, how="all").sort_values(["quantity", "model"]).reset_index(drop=True)


def _reported(study: StudyTables, grouping: str) -> pd.DataFrame:
    """Return the tests of a grouping at the reported tolerance; no rows if the study has no tests."""
    import pandas as pd

    if study.rank_tests is None:
        return pd.DataFrame(columns=list(COLUMNS))
    tests = require(study.rank_tests, COLUMNS)
    return tests[(tests["grouping"] == grouping) & tests["measure"].str.endswith(REPORTED_TOLERANCE)]


def _describe_contrast(row: Mapping[Any, Any]) -> str:
    begin = (
        f"Time series minus other data, {_name_quantity(row['measure'])} as a share of the full rank, "
        f"ε = {format_power(-2)}: "
    )
    if not verdicts.is_present(row["estimate"]):
        return begin + f"nothing measured{': ' + str(row['reason']) if verdicts.is_present(row['reason']) else ''}."
    return begin + f"{verdicts.format_number(row['estimate'])}{verdicts.format_evidence(row)}."


def _name_quantity(measure: str) -> str:
    name = measure.partition("@")[0]
    return QUANTITIES.get(name, name)
