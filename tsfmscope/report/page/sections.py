"""Sections of the page: text, figures, tables, and the SQL and CSV that they come from."""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from tsfmscope.report.page.texts import TEXTS
from tsfmscope.report.render import draw_inline
from tsfmscope.report.tables import Answer

if TYPE_CHECKING:
    import pandas as pd

    from tsfmscope.report.style import Chart

# Largest number of rows of a table in the page; its CSV contains all.
ROWS_SHOWN = 400
# Smallest number of rows for which a table gets a filter box.
FILTER_FROM = 12
NOTHING = "–"
# Column whose values are keys of `verdicts.VERDICTS`.
VERDICT = "verdict"


@dataclass(frozen=True, eq=False)
class Figure:
    """One chart with its texts.

    alt: alternative text. title: short title, for figures that stand next to others.
    source: name of the answer that it is drawn from, as in `Provenance.name`; by default the figure's name.
    """

    name: str
    chart: Chart
    alt: str
    caption: str
    title: str = ""
    source: str = ""

    @cached_property
    def svg(self) -> str:
        """The chart as an SVG element, ready to embed in the page."""
        from markupsafe import Markup

        return Markup(draw_inline(self.chart, self.name))


class ClaimSentence(NamedTuple):
    """Sentence on a claim, with its verdict as a CSS class name."""

    verdict: str
    text: str


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


@dataclass(frozen=True)
class TableBlock:
    """Table with its title."""

    name: str
    title: str
    table: HtmlTable


@dataclass(frozen=True)
class Provenance:
    """SQL of one answer, and its data as a CSV link (a data: URI). rows: number of rows."""

    name: str
    title: str
    sql: str
    csv: str
    rows: int


@dataclass(frozen=True)
class Section:
    """One question of the page: text, verdicts on claims, figures and tables, with their SQL and data.

    provenance: SQL and data of every answer that the section shows.
    rows: number of rows that the section shows; with none, `empty` is shown.
    kicker: the figure or table of a paper that the section is about.
    folded: whether the page shows only the title until a reader opens it.
    """

    name: str
    title: str
    lead: str
    provenance: tuple[Provenance, ...]
    rows: int
    figures: tuple[Figure, ...] = ()
    tables: tuple[TableBlock, ...] = ()
    empty: str = "No rows."
    kicker: str = ""
    claims: tuple[ClaimSentence, ...] = ()
    notes: tuple[str, ...] = ()
    folded: bool = False

    def figure_provenance(self, index: int) -> tuple[Provenance, ...]:
        """Return the SQL and data to show under the figure at this index.

        Figures that share a source show it once, under the last of them.
        """
        source, *others = (figure.source or figure.name for figure in self.figures[index:])
        return tuple(answer for answer in self.provenance if answer.name == source and source not in others)

    @property
    def other_provenance(self) -> tuple[Provenance, ...]:
        """SQL and data that belong to no figure, only to tables and sentences."""
        sources = {figure.source or figure.name for figure in self.figures}
        return tuple(answer for answer in self.provenance if answer.name not in sources)


def make_provenance(name: str, answer: Answer) -> Provenance:
    """Return the SQL and data of an answer."""
    return Provenance(name, answer.title, answer.sql, csv_link(answer.frame), len(answer.frame))


def build_section(
    name: str,
    answer: Answer,
    lead: str,
    *,
    figures: tuple[Figure, ...] = (),
    table: HtmlTable | None = None,
    empty: str = "No rows.",
) -> Section:
    """Build a section from one answer."""
    tables = (TableBlock(name, answer.title, table),) if table is not None and len(answer.frame) else ()
    provenance, rows = (make_provenance(name, answer),), len(answer.frame)
    return Section(name, answer.title, lead, provenance, rows, figures, tables, empty)


def list_rows(name: str, answer: Answer, lead: str, *, empty: str = "No rows.") -> Section:
    """Build a section that shows an answer as a table."""
    return build_section(name, answer, lead, table=build_table(answer.frame), empty=empty)


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
    heads = [TEXTS["labels"].get(str(name), str(name).replace("_", " ")) for name in frame.columns]
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
