"""Sections of the page: text, figures, tables, and the SQL and CSV that they come from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tsfmscope.report.page.html_table import HtmlTable, build_table, csv_link
from tsfmscope.report.page.verdicts import ClaimSentence
from tsfmscope.report.render import draw_inline
from tsfmscope.report.tables import Answer

if TYPE_CHECKING:
    from tsfmscope.report.charts.style import Chart


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


@dataclass(frozen=True)
class EmbeddedFigure:
    """One figure as embedded in the page.

    svg: the chart as an SVG element.
    """

    name: str
    alt: str
    caption: str
    svg: str
    source: str


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
    figures: tuple[EmbeddedFigure, ...] = ()
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
        source = self.figures[index].source
        is_last = all(later.source != source for later in self.figures[index + 1 :])
        return tuple(answer for answer in self.provenance if is_last and answer.name == source)

    @property
    def other_provenance(self) -> tuple[Provenance, ...]:
        """SQL and data that belong to no figure, only to tables and sentences."""
        sources = {figure.source for figure in self.figures}
        return tuple(answer for answer in self.provenance if answer.name not in sources)


def make_provenance(name: str, answer: Answer) -> Provenance:
    """Return the SQL and data of an answer."""
    return Provenance(name, answer.title, answer.sql, csv_link(answer.frame), len(answer.frame))


def embed_figure(figure: Figure) -> EmbeddedFigure:
    """Return a figure with its SVG, ready to embed in the page."""
    from markupsafe import Markup

    svg = Markup(draw_inline(figure.chart, figure.name))
    return EmbeddedFigure(figure.name, figure.alt, figure.caption, svg, figure.source or figure.name)


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
    return Section(
        name,
        answer.title,
        lead,
        (make_provenance(name, answer),),
        len(answer.frame),
        tuple(map(embed_figure, figures)),
        tables,
        empty,
    )


def list_rows(name: str, answer: Answer, lead: str, *, empty: str = "No rows.") -> Section:
    """Build a section that shows an answer as a table."""
    return build_section(name, answer, lead, table=build_table(answer.frame), empty=empty)
