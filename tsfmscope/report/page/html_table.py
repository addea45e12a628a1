"""Data frames as HTML table cells that a script can sort, and as CSV links."""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

# Largest number of rows of a table in the page; its CSV contains all.
ROWS_SHOWN = 400
# Smallest number of rows for which a table gets a filter box.
FILTER_FROM = 12
NOTHING = "–"
# Column whose values are keys of `verdicts.VERDICTS`.
VERDICT = "verdict"

LABELS = {
    "spearman": "Spearman ρ",
    "pearson": "Pearson r",
    "wql_vs_median": "WQL ÷ context median",
    "wql_vs_seasonal": "WQL ÷ point seasonal naive",
    "sine_error": "sine: error ÷ forecasting 0",
    "sine_error_max": "sine: largest error of all periods",
    "sine_period_max": "at period",
    "n_real": "real sets",
    "real_wql": "real sets: WQL ÷ point seasonal naive",
    "real_low": "low",
    "real_high": "high",
    "real_mae": "real sets: MAE ÷ point seasonal naive",
    "wql_low": "WQL ratio, low",
    "wql_high": "WQL ratio, high",
    "mae_low": "MAE ratio, low",
    "mae_high": "MAE ratio, high",
    "mae": "MAE",
    "mae_ratio": "MAE ÷ point seasonal naive",
    "seasonal_low": "low",
    "seasonal_high": "high",
    "n_windows": "windows",
    "n_series": "series",
    "wql": "WQL",
    "wql_ratio": "WQL ÷ seasonal naive",
    "mase": "MASE",
    "season": "season, steps",
    "nmse": "NMSE",
    "nmse_validation": "NMSE, validation window",
    "n_datasets": "data sets",
    "n_seasonal": "seasonal sets",
    "zeta_adjusted_corrected": "ζ′ − null",
    "isoscore": "IsoScore",
    "dimension_share": "d(0.8) ÷ width",
    "rank_share_first": "rank ÷ width, first layer",
    "rank_share_last": "rank ÷ width, last layer",
    "dataset": "data set",
    "ref": "reference",
}


@dataclass(frozen=True)
class Cell:
    """Table cell. text: shown; number: sort key of a numeric cell, else None; kind: CSS class."""

    text: str
    number: float | None
    kind: str = ""


@dataclass(frozen=True)
class HtmlTable:
    """Table for the page.

    numeric: for each column, whether any of its cells is a number. total: number of rows of the whole frame.
    """

    heads: list[str]
    numeric: list[bool]
    rows: list[list[Cell]]
    total: int

    @property
    def filtered(self) -> bool:
        """Whether the page shows a filter box."""
        return self.total >= FILTER_FROM


def build_table(frame: pd.DataFrame, *, rows: int = ROWS_SHOWN) -> HtmlTable:
    """Return the first `rows` rows as cells.

    Null and NaN show as a dash and sort last. A verdict is also the CSS class of its cell.
    """
    cells = [[_cell(value) for value in row] for row in frame.head(rows).itertuples(index=False, name=None)]
    if VERDICT in frame:
        position = [*frame.columns].index(VERDICT)
        for row in cells:
            row[position] = replace(row[position], kind=row[position].text.replace(" ", "-"))
    numeric = [
        bool(cells) and any(row[position].number is not None for row in cells) for position in range(frame.shape[1])
    ]
    heads = [LABELS.get(str(name), str(name).replace("_", " ")) for name in frame.columns]
    return HtmlTable(heads, numeric, cells, len(frame))


def csv_link(frame: pd.DataFrame) -> str:
    """Return a data: URI with the whole frame as UTF-8 CSV."""
    text = frame.to_csv(index=False, lineterminator="\n")
    return "data:text/csv;charset=utf-8;base64," + base64.b64encode(text.encode()).decode()


def _cell(value: Any) -> Cell:
    if value is None or (isinstance(value, float) and math.isnan(value)) or str(value) in ("NaT", "<NA>"):
        return Cell(NOTHING, None)
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, bool):
        return Cell("yes" if value else "no", None)
    if isinstance(value, int):
        return Cell(f"{value:,}", float(value))
    if isinstance(value, float):
        return Cell(_number(value), value)
    return Cell(str(value), None)


def _number(value: float) -> str:
    """Format a number with a true minus sign.

    Integers, and numbers from 1,000 on, show all digits before the point while below a million; others show
    three significant figures.
    """
    whole = value.is_integer() or abs(value) >= 1e3
    text = f"{value:,.0f}" if whole and abs(value) < 1e6 else f"{value:.3g}"
    return text.replace("-", "−")
