"""The section of one study: its plot, and the paper's claims and numbers next to the measured ones."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tsfmscope.tasks.report import compression, ranks
from tsfmscope.tasks.report.page import verdicts
from tsfmscope.tasks.report.page.html_table import html_table
from tsfmscope.tasks.report.page.sections import Figure, Provenance, Section, TableBlock, behind, picture
from tsfmscope.tasks.report.plots import figures, panels
from tsfmscope.tasks.report.tables import Answer, StudyTables, require

if TYPE_CHECKING:
    import pandas as pd

POINTS = ("model", "dataset", "domain", "paper", "stands_in_for", "condition", *figures.AXES, "nmse")
LAYERS = ("model", "family", "stack", "layer", "normed", "median", "low", "high", "n")
TOKENS = ("model", "stack", "layer", "dataset", "condition", "series", "position", "cluster", "pc1", "pc2", "pc3")
# Matches the layer in `source` of the rows of Shelim et al. 2025, Table 1.
TABLE_LAYER = re.compile(r"layer (\d+)$")
DIMENSION = "d(0.8)"
# Column of the state after the final norm, which is not a numbered layer.
NORMED = "n′"
LEADS = {
    "domains": "A panel a domain, a point a model on a data set; left is more isotropic, low is less error. Hover, or "
    "tap, to read a point; tap the legend to filter.",
    "conditions": "A panel a domain, a point a model on a data set; arrows lead from the first condition to "
    "the second. Left is more isotropic, low is less error.",
    "islands": "Hidden states of single tokens on their first three principal components. Drag to turn.",
    "dimension": "How many principal directions hold 80 % of the variance of the hidden states, by layer.",
    "none": "",
    **ranks.LEADS,
}


def drawn(study: StudyTables, models: Sequence[str]) -> tuple[Figure, ...]:
    """Draw the study's figures; empty if nothing can be drawn.

    models: the models of the whole page, which determine the colours.
    """
    if study.ranks:
        return ranks.drawn(study, models)
    draw = {"domains": _panels, "conditions": _panels, "islands": _islands, "dimension": _layers}.get(study.plot)
    return draw(study, models) if draw else ()


def section(study: StudyTables, models: Sequence[str], notes: Sequence[str], still: bytes | None = None) -> Section:
    """Build the page's section on one study.

    models: the models of the whole page, which determine the colours.
    notes: additional sentences on this study.
    still: PNG of all its figures, for print and for readers without JavaScript.
    """
    published = require(study.published, verdicts.COLUMNS)
    shown = drawn(study, models)
    listings = []
    if study.plot == "dimension" and len(study.layers.frame):
        table = html_table(paper_table(require(study.layers, LAYERS), published))
        listings.append(TableBlock(f"{study.name}-layers", f"{DIMENSION} by layer, the paper's below ours", table))
    # Printed numbers without a measurement are shown only in the section of all printed numbers.
    beside = published[published["verdict"] != "not measured"]
    if study.plot == "dimension":
        beside = beside[beside["quantity"] != DIMENSION]
    numbers = verdicts.numbers(beside).drop(columns=["figure", "condition", "n"], errors="ignore")
    if len(numbers):
        listings.append(TableBlock(f"{study.name}-published", "Printed numbers and ours", html_table(numbers)))
    if (tests := ranks.by_model(study)) is not None:
        listings.append(TableBlock(f"{study.name}-tests", "Growth with depth, model by model", html_table(tests)))
    lines = [line for line in (verdicts.tally(published), *ranks.contrasts(study), *notes) if line]
    return Section(
        f"study-{study.name}",
        study.title,
        LEADS.get(study.plot, ""),
        tuple(_behind(study)),
        ranks.rows(study) if study.ranks else len(_main(study).frame),
        tuple(map(picture, shown)),
        tuple(listings),
        "Nothing of this study is at hand: its models, data sets or conditions left no result.",
        kicker=study.figure or "",
        said=(*verdicts.claims(published), *compression.said(study)),
        notes=tuple(lines),
        still="data:image/png;base64," + base64.b64encode(still).decode() if still else "",
    )


def paper_table(layers: pd.DataFrame, published: pd.DataFrame) -> pd.DataFrame:
    """Return d(0.8) in the layout of Shelim et al. 2025, Table 1: one column per layer.

    There is one row per model and stack. Layers are numbered from 1. Below the rows of a family stands the
    paper's row, where the paper prints one. Column n′ is the state after the final norm, which the paper does
    not report. Layer 0, the embedding's output, is left out of the table but is in the section's data.
    """
    import pandas as pd

    rows = layers[layers["layer"] >= 1]
    printed = published[(published["quantity"] == DIMENSION) & published["published"].notna()]
    out: list[dict[str, object]] = []
    for family, part in rows.groupby("family", sort=True):
        out += [_our_row(model, stack, one) for (model, stack), one in part.groupby(["model", "stack"], sort=True)]
        theirs = printed[printed["model"].isin(part["model"])]
        if len(theirs):
            out.append(_paper_row(family, dict(zip(theirs["source"], theirs["published"], strict=True))))
    frame = pd.DataFrame(out)
    numbered = sorted((name for name in frame.columns if name.isdigit()), key=int)
    return frame[[name for name in ("whose", "model", "stack", *numbered, NORMED) if name in frame]]


def _our_row(model: object, stack: object, rows: pd.DataFrame) -> dict[str, object]:
    named = [NORMED if normed else str(int(at)) for at, normed in zip(rows["layer"], rows["normed"], strict=True)]
    return {"whose": "ours", "model": model, "stack": stack, **dict(zip(named, rows["median"], strict=True))}


def _paper_row(family: object, numbers: Mapping[str, float]) -> dict[str, object]:
    """Return the paper's row of a family.

    numbers: source -> printed number; a source that ends in "layer N" gives the column.
    """
    found = {TABLE_LAYER.search(source): number for source, number in numbers.items()}
    layers = {at.group(1): float(number) for at, number in found.items() if at}
    return {"whose": "the paper", "model": family, "stack": None, **layers}


def _panels(study: StudyTables, models: Sequence[str]) -> tuple[Figure, ...]:
    frame = require(study.points, POINTS)
    of_paper = study.figure is not None
    rows = panels.placed(frame, of_paper=of_paper)
    if rows.empty:
        return ()
    draw = panels.by_domain if study.plot == "domains" else panels.by_condition
    left = len(frame) - len(rows)
    caption = _captions(rows, study)
    if left:
        caption += f" {left} of {len(frame)} points have no value on a log axis and are not drawn; the data holds them."
    count = rows["panel"].nunique()
    drawing = draw(frame, models, study.conditions, of_paper=of_paper)
    alt = (
        f"{count} scatter plots of NMSE against {figures.AXES[panels.measure(of_paper)]}, one per domain "
        f"({', '.join(rows['panel'].unique())}), {len(rows)} points, both axes logarithmic and shared."
    )
    if of_paper:
        caption += " The axis is the printed |ζ′|; the tests below take ζ′ less its null mean."
    return (Figure(f"{study.name}-0", drawing, alt, caption, source=study.name),)


def _captions(rows: pd.DataFrame, study: StudyTables) -> str:
    """Return a caption on fills, lines and numbers.

    It names the data sets whose names are not already domain and number.
    """
    here = [name for name in study.conditions if name in set(rows["condition"])]
    if study.plot == "conditions":
        text = (
            f"Filled: {here[0]}" + "".join(f"; then {name}" for name in here[1:]) + "; numbers: the domain's data sets."
        )
    else:
        text = "Filled: Dataset 1 of the domain; open: Dataset 2; a line joins the two of one model."
        text += f" Condition: {here[0]}." if len(here) == 1 else f" Dashes: {', '.join(here)}."
    facts = rows.drop_duplicates("dataset").sort_values(["order", "number"])
    told: dict[str, list[str]] = {}
    for row in facts.itertuples(index=False):
        if row.dataset != f"{row.domain}-{row.number}":
            stand_in = " (a stand-in)" if isinstance(row.stands_in_for, str) else ""
            told.setdefault(str(row.domain), []).append(f"{row.number} {row.dataset}{stand_in}")
    names = "; ".join(f"{domain} {', '.join(found)}" for domain, found in told.items())
    return text + (f" Data sets: {names}." if names else "")


def _islands(study: StudyTables, models: Sequence[str]) -> tuple[Figure, ...]:
    if study.states.frame.empty:
        return ()
    found = []
    frame = require(study.states, (*TOKENS, "explained", "n_tokens"))
    order = {name: place for place, name in enumerate(study.conditions)}
    cells = sorted(frame.groupby(list(TOKENS[:5])), key=lambda cell: (cell[0][:4], order.get(str(cell[0][4]), -1)))
    for place, (names, part) in enumerate(cells):
        model, stack, layer, dataset, condition = names
        percent = f"{100 * float(part['explained'].iloc[0]):.0f} %"
        where = f"{model}, {stack} layer {layer}, {dataset}, {condition}"
        share = f"three components hold {percent} of the variance"
        of = f"{len(part):,} of {int(part['n_tokens'].iloc[0]):,} tokens"
        alt = f"Three-dimensional scatter plot of {of} of {where}; {share}."
        varying = [
            name for name, column in ((dataset, "dataset"), (condition, "condition")) if frame[column].nunique() > 1
        ]
        title = f"{model}, {stack} {layer}{''.join(f', {name}' for name in varying)}: {percent}"
        said = f"{where}: {of}; {share}."
        found.append(Figure(f"{study.name}-{place}", figures.islands(part), alt, said, title, True, study.name))
    return tuple(found)


def _layers(study: StudyTables, models: Sequence[str]) -> tuple[Figure, ...]:
    frame = require(study.layers, LAYERS)
    if frame.empty:
        return ()
    low, high = frame["median"].min(), frame["median"].max()
    alt = "Line chart of effective dimension by layer, one line a model and stack: "
    alt += f"{', '.join(figures.names(frame, 'model'))}; between {low:g} and {high:g} dimensions."
    caption = (
        "One data set." if int(frame["n"].max()) == 1 else "Median over data sets and conditions; whiskers: range."
    )
    bases = frame["model"].str.partition("@")[0]
    if bases.equals(frame["model"]):
        drawing = figures.effective_dimension(frame, models)
        return (Figure(f"{study.name}-0", drawing, alt, caption, source=study.name),)
    # One figure per base model, together with the models that are compressed from it.
    return tuple(
        Figure(f"{study.name}-{place}", figures.effective_dimension(part), alt, caption, str(base), source=study.name)
        for place, (base, part) in enumerate(frame.groupby(bases, sort=True))
    )


def _main(study: StudyTables) -> Answer:
    """Return the answer that the study's plot is drawn from."""
    return {"islands": study.states, "dimension": study.layers}.get(study.plot, study.points)


def _behind(study: StudyTables) -> list[Provenance]:
    answers = {study.name: _main(study)}
    if study.ranks:
        there = {name: answer for name, answer in study.ranks.items() if len(answer.frame)} or study.ranks
        answers = {f"{study.name}-{name}": answer for name, answer in there.items()}
    if len(study.published.frame):
        answers[f"{study.name}-published"] = study.published
    return [behind(name, answer) for name, answer in answers.items()]
