"""What a section of the page is: words, pictures, tables, and the SQL and CSV behind them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tasks.report.html_table import HtmlTable, csv_link
from tasks.report.tables import Answer
from tasks.report.verdicts import Said

if TYPE_CHECKING:
    import plotly.graph_objects as go


@dataclass(frozen=True, eq=False)
class Drawn:
    """One figure with what it shows in words, a caption, and a short title for where several stand together.

    source: the name of the answer that it is drawn from, as in `Behind`.
    """

    name: str
    figure: go.Figure
    alt: str
    caption: str
    title: str = ""
    tall: bool = False
    source: str = ""


@dataclass(frozen=True)
class Picture:
    """One figure as the page holds it: its JSON for plotly.js is safe inside a script element. height in pixels."""

    name: str
    alt: str
    caption: str
    json: str
    source: str
    tall: bool = False
    height: int | None = None


@dataclass(frozen=True)
class Listing:
    """A table and what it is called."""

    name: str
    title: str
    table: HtmlTable


@dataclass(frozen=True)
class Behind:
    """The SQL of one answer and its data as a link."""

    name: str
    title: str
    sql: str
    csv: str
    rows: int


@dataclass(frozen=True)
class Section:
    """One question: words, the verdicts on claims, pictures and tables, and what is behind them.

    kicker: where a reader finds it in a paper. still: a data: URI of all pictures, for print and without JavaScript.
    """

    name: str
    title: str
    lead: str
    behind: tuple[Behind, ...]
    rows: int
    pictures: tuple[Picture, ...] = ()
    listings: tuple[Listing, ...] = ()
    empty: str = "No rows."
    kicker: str = ""
    said: tuple[Said, ...] = ()
    notes: tuple[str, ...] = ()
    still: str = ""

    def under(self, place: int) -> tuple[Behind, ...]:
        """What is behind the picture at a place, where no later picture is drawn from the same."""
        source = self.pictures[place].source
        last = all(later.source != source for later in self.pictures[place + 1 :])
        return tuple(one for one in self.behind if last and one.name == source)

    @property
    def rest(self) -> tuple[Behind, ...]:
        """What is behind no picture but behind tables and sentences."""
        drawn = {picture.source for picture in self.pictures}
        return tuple(one for one in self.behind if one.name not in drawn)


def behind(name: str, answer: Answer) -> Behind:
    """What is behind an answer."""
    return Behind(name, answer.title, answer.sql, csv_link(answer.frame), len(answer.frame))


def picture(drawn: Drawn) -> Picture:
    """A figure as JSON."""
    height = drawn.figure.layout.height
    return Picture(
        drawn.name, drawn.alt, drawn.caption, script_json(drawn.figure.to_json()), drawn.source or drawn.name,
        drawn.tall, height and int(height),
    )  # fmt: skip


def section(
    name: str,
    answer: Answer,
    lead: str,
    *,
    drawn: tuple[Drawn, ...] = (),
    table: HtmlTable | None = None,
    empty: str = "No rows.",
) -> Section:
    """A section of one answer."""
    listings = (Listing(name, answer.title, table),) if table is not None and len(answer.frame) else ()
    return Section(
        name,
        answer.title,
        lead,
        (behind(name, answer),),
        len(answer.frame),
        tuple(map(picture, drawn)),
        listings,
        empty,
    )


def script_json(text: str | None) -> Any:
    """JSON that cannot end the script element that holds it: nothing is left in it that HTML reads."""
    from markupsafe import Markup

    escaped = (text or "null").replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return Markup(escaped)
