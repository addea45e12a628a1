"""NMSE against isotropy, one panel per domain.

Studies of figures of Shelim et al. 2025 (Figs. 3 and 7) show the printed |ζ′|. Other studies show |ζ′ − its null mean|,
because the main correlation of the report uses ζ′ minus its null mean.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import altair as alt

from tsfmscope.report import scatter, style
from tsfmscope.report.page.sections import Figure
from tsfmscope.report.plots import Plot
from tsfmscope.report.scatter import CORRECTED, PRINTED
from tsfmscope.report.style import Chart
from tsfmscope.report.tables import StudyTables

if TYPE_CHECKING:
    import pandas as pd

# Measure -> column of its rank correlation with the error in the data set and condition.
RHO = {CORRECTED: "rho_corrected", PRINTED: "rho_printed"}
COLUMNS = (
    "model", "dataset", "domain", "paper", "stands_in_for", "condition", *scatter.AXES, "nmse", *RHO.values(),
)  # fmt: skip
# End of the caption of a study that shows the measure of the paper.
TESTED_MEASURE = " The plot shows |ζ′| as printed; the tests below use ζ′ minus its null mean."
# Marks of the first data sets of a panel as characters, for as many as its title names.
GLYPHS = "●○"
# Longest name of a data set in a title, and the part of its end that is kept, in characters.
NAME, TAIL = 22, 15
HEIGHT = 165
# Panels a, b, c ... of Figs. 3, 5 and 6 (synthetic) and of Figs. 7 and 8 (real). Section 5.2 calls
# retail "Figure 7 e", so retail precedes transport, as in the text of section 5 and unlike Table 3.
SYNTHETIC = ("linear", "seasonality", "trend", "non-linear", "stochastic")
REAL = ("energy", "nature", "finance", "healthcare", "retail", "transport")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
NO_DOMAIN = "other"
# Matches the number in the paper's name of a data set, such as finance-1.
NUMBER = re.compile(r"-(\d+)$")


def draw(study: StudyTables, models: Sequence[str]) -> Iterator[Figure]:
    """Draw the panels; nothing if no point has a value on both logarithmic axes."""
    frame, of_paper = study.rows("points", COLUMNS), study.figure is not None
    points = place_points(frame, of_paper=of_paper)
    if points.empty:
        return
    domains = points["panel"].unique()
    words = (
        f"{len(domains)} scatter plots of NMSE against {scatter.AXES[choose_measure(of_paper)]}, one per domain "
        f"({', '.join(domains)}), {len(points)} points, both axes logarithmic and shared."
    )
    conditions = [name for name in study.conditions if name in set(points["condition"])]
    caption = (
        "Filled: first data set of the domain; open: second. A line joins the two of a model. ρ: Spearman correlation "
        "of isotropy and error over models, negative if more isotropic models have less error." + scatter.NOT_EVENNESS
    )
    caption += f" Condition: {conditions[0]}." if len(conditions) == 1 else f" Dashes: {', '.join(conditions)}."
    caption += describe_datasets(points) + scatter.describe_undrawable(len(frame), len(points))
    caption += TESTED_MEASURE if of_paper else ""
    drawn = draw_by_domain(frame, models, study.conditions, of_paper=of_paper)
    yield Figure("points", drawn, words, caption)


def describe_datasets(points: pd.DataFrame) -> str:
    """Return a sentence on the data sets whose names are not already domain and number; empty without any."""
    names: dict[str, list[str]] = {}
    for row in points.drop_duplicates("dataset").sort_values(["order", "number"]).itertuples(index=False):
        if row.dataset != f"{row.domain}-{row.number}":
            stand_in = " (a stand-in)" if isinstance(row.stands_in_for, str) else ""
            names.setdefault(str(row.domain), []).append(f"{row.number} {row.dataset}{stand_in}")
    text = "; ".join(f"{domain} {', '.join(datasets)}" for domain, datasets in names.items())
    return f" Data sets: {text}." if text else ""


def draw_by_domain(
    frame: pd.DataFrame, models: Sequence[str], conditions: Sequence[str], *, of_paper: bool = True
) -> Chart:
    """Draw one point per model and data set.

    frame: model, dataset, domain, paper, condition, the measure, nmse; rows that log axes cannot show are
    left out.
    models: the models of the whole page, which determine colours and symbols, so that a model looks the same
    everywhere.
    conditions: in the study's order; with more than one, each has its own dash.
    of_paper: as in `place_points`.

    The first data set of a domain is filled and all others are open; a line joins those of a model. The title of a
    panel names its data sets with their ρ, unless a domain has more than two of them.
    """
    measure, count = choose_measure(of_paper), frame["model"].nunique()
    rows = scatter.describe_points(place_points(frame, of_paper=of_paper), measure)
    rows = rows.assign(is_filled=rows["number"] == 1)
    shown = [name for name in conditions if name in set(rows["condition"])]
    x = style.make_log_axis(scatter.ISOTROPY_TITLES[measure], rows["isotropy"])
    y = style.make_log_axis(scatter.ERROR_TITLE, rows["nmse"])
    columns, panels = style.choose_columns(rows["panel"].nunique(), 3), []
    for _, part in rows.groupby("panel", sort=False):
        base = alt.Chart(part).encode(x=alt.X("isotropy:Q", **x), y=alt.Y("nmse:Q", **y))
        links = base.mark_line(strokeWidth=1, opacity=0.45, aria=False).encode(
            stroke=alt.Stroke("model:N"), strokeDash=style.encode_dash("condition", shown), order="number:Q"
        )
        drawn = alt.layer(links, scatter.mark_models(base, rows, models))
        panels.append(style.name_panel(drawn, _title(part, shown, RHO[measure], count), columns, HEIGHT))
    return style.arrange_panels(panels, columns)


def _title(rows: pd.DataFrame, conditions: Sequence[str], column: str, count: int) -> str:
    """Return the title of a panel: its domain, then one line per data set with its mark, name and ρ.

    column: the column with ρ; without it, or where it is missing, there is none. count: number of models; a
    data set with fewer points has their number. More data sets than GLYPHS are counted only.
    """
    lines, numbers = [str(rows["panel"].iloc[0])], sorted(rows["number"].unique().tolist())
    if max(numbers) > len(GLYPHS):
        return f"{lines[0]}\n{len(numbers)} data sets"
    for number in numbers:
        part, glyph = rows[rows["number"] == number], GLYPHS[number - 1]
        words = [f"{glyph} {style.shorten_name(str(part['dataset'].iloc[0]), NAME, TAIL)}"]
        found = [part.loc[part["condition"] == name, column].dropna() for name in conditions if column in part]
        if rhos := [f"{round(values.iloc[0], 1) + 0:.1f}".replace("-", "−") for values in found if len(values)]:
            words.append(f"ρ = {' and '.join(rhos)}")
        if len(part) < count * len(conditions):
            words.append(f"n = {len(part)}")
        lines.append(", ".join(words))
    return "\n".join(lines)


def choose_measure(of_paper: bool) -> str:
    """Return the x axis' column: the printed ζ′ for a figure of the paper, else ζ′ minus its null mean."""
    return PRINTED if of_paper else CORRECTED


def place_points(frame: pd.DataFrame, *, of_paper: bool = True) -> pd.DataFrame:
    """Return the drawable rows, sorted by panel, with columns `panel`, `number` and `order`.

    panel: letter and domain. number: of the data set in its domain, from 1. order: position of the panel.
    Letters and numbers are computed from all rows, so that a panel keeps its letter where some points cannot
    be drawn.

    of_paper: whether the study reproduces a figure of the paper; the panels then have the paper's letters.
    """
    return scatter.select_drawable(number_datasets(frame, of_paper=of_paper), choose_measure(of_paper))


def number_datasets(frame: pd.DataFrame, *, of_paper: bool = True) -> pd.DataFrame:
    """Return all rows with the columns that `place_points` adds, in its order."""
    named = frame.assign(domain=frame["domain"].fillna("").replace("", NO_DOMAIN))
    letters = assign_letters(named["domain"], of_paper=of_paper)
    domains = dict(zip(named["dataset"], named["domain"], strict=True))
    papers = {d: p if isinstance(p, str) else None for d, p in zip(named["dataset"], named["paper"], strict=True)}
    panel = [f"{letters[domain]} · {domain}" for domain in named["domain"]]
    order = named["domain"].map({domain: position for position, domain in enumerate(letters)})
    rows = named.assign(panel=panel, number=named["dataset"].map(assign_numbers(domains, papers)), order=order)
    return rows.sort_values(["order", "model", "number", "condition"])


def assign_letters(domains: Iterable[str], *, of_paper: bool = True) -> dict[str, str]:
    """Return domain -> letter of its panel: the paper's domains in its order, then others by name.

    of_paper: whether the figure reproduces one of the paper. If it has only synthetic or only real domains,
    its panels then have the paper's letters, even where a panel is missing. Any other figure has a, b, c ...
    without gaps.
    """
    named = set(domains)
    known = [domain for domain in (*SYNTHETIC, *REAL) if domain in named]
    ordered = known + sorted(named - set(known))
    papers: Sequence[str] = ordered
    for group in (SYNTHETIC, REAL):
        if of_paper and named <= set(group):
            papers = group
    letters = dict(enumerate(LETTERS))
    return {domain: letters.get(papers.index(domain), str(papers.index(domain) + 1)) for domain in ordered}


def assign_numbers(domains: Mapping[str, str], papers: Mapping[str, str | None]) -> dict[str, int]:
    """Return data set -> its number in its domain, from 1.

    domains: data set -> domain. papers: data set -> the paper's name for it, such as finance-1, or None. The
    number in the paper's name is kept; if several data sets claim it, the first by name gets it. The others
    take the free numbers in alphabetical order.
    """
    numbers: dict[str, int] = {}
    for domain in sorted(set(domains.values())):
        names = sorted(name for name, of in domains.items() if of == domain)
        for name in names:
            match = NUMBER.search(papers.get(name) or "")
            if match and int(match[1]) not in (numbers.get(other) for other in names):
                numbers[name] = int(match[1])
        taken = {numbers[name] for name in names if name in numbers}
        free = (number for number in range(1, 2 * len(names) + 1) if number not in taken)
        numbers |= {name: next(free) for name in names if name not in numbers}
    return numbers


PLOT = Plot(
    "One panel per domain, one point per model and data set. Further left, ζ′ is nearer to its null; lower is less "
    "error. Point at a mark, or tap it, to read it.",
    {"points": COLUMNS},
    draw,
)
