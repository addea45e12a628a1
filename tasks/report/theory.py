"""Sections on the theorems of Yu et al. 2026: their statements, random instances and fitted slopes."""

from __future__ import annotations

import base64
import math
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from tsfmscope.tasks.report.charts import theory as figures
from tsfmscope.tasks.report.page.html_table import html_table
from tsfmscope.tasks.report.page.sections import Figure, Provenance, Section, TableBlock, behind, picture
from tsfmscope.tasks.report.page.verdicts import ClaimSentence, number
from tsfmscope.tasks.report.tables import Answer, ReportTables, require

if TYPE_CHECKING:
    import pandas as pd

POINTS = ("experiment", "heads", "x", "y", "low", "high", "n")
SLOPES = ("experiment", "n_seeds", "slope", "low", "high", "claimed", "verdict")
BOUNDS = (
    "experiment", "form", "kind", "n", "violations", "ratio_median", "ratio_largest", "worst_seed", "worst_instance",
    "worst_x", "worst_y", "worst_bound", "worst_setting",
)  # fmt: skip
# Experiment of the view `theory_slopes` -> the paper's claim and the slope that it implies.
CLAIMS = {
    "J.1 rank": "the error grows as σ of index d̃ + 1: slope 1",
    "J.1 width": "the error grows as √d: slope ½",
    "J.2 sparse": "the effective rank of a sparse sketch grows in proportion to h: slope 1",
    "J.2 sparse to dense": "a sparse sketch is as good as a dense one: the ratio of their errors has slope 0 against h",
    "J.3 spread": "the rank of MH-Attention(X) + X grows with h: slope above 0, scores with standard deviation 1",
    "J.3 bounded": "the rank grows with h: slope above 0, here with weights as Theorem 4 bounds them",
    "Theorem 3.1 length": "the error does not grow with the length L, here of one column of Ξ, L times: slope 0",
}
RATE = "Corollary 2 rate"
# Statement -> where the printed form fails, and the repair.
MENDED = {
    "Theorem 3.1": "columns of Ξ that stand often in U: the proof bounds a sum of L vectors by √L times the largest, "
    "not L times. Repaired: √d σ times min(3 √L, 3e √m), m the most often that one column stands in U",
    "Theorem 5": "the same step as Theorem 3.1, head by head; the same repair",
    "Theorem 3.2": "L above 4d + 1, where the construction's weights fall below ½. Repaired: log(4L) for log(4d)",
    "Corollary 2": "|w| above 1, which moves the poles into the ellipse. Repaired: |w| ≤ 1",
    "Corollary 1 upper": "the index: the proof's own arithmetic gives ⌊(k − 1)/(h + 1)⌋ + 1, not ⌊(k + 1)/(h + 1)⌋ + 1",
    "Corollary 1 lower": "heads of fewer dimensions than heads: the index needs k ≤ d − h, not k ≤ d − d_h",
    "Theorem 6.2": "one head, whose shared vector then is its own first. Repaired: the head's next vector instead",
}
FIG_17 = (
    "Appendix J.3: the same X and weights, cut into ever more heads. The paper prints neither sizes nor scales; with "
    "weights as Theorem 4 bounds them the scores hardly differ and the rank stays, so that here the scores have "
    "standard deviation 1."
)
BOUND_LEAD = (
    "Both sides of every bound at random instances: random shapes, spectra and heads, weights scaled to equality in "
    "the hypotheses, and the proofs' own constructions. Where the paper says O(·), the constant is its proof's. "
    "A bound whose printed form fails stands beside the form that its proof supports, which must never fail (a "
    "check of results.duckdb). Each row of the table names its worst instance: "
    "tsfmscope.tasks.theory.statements.instance makes it again from statement, seed and number."
)


class _Part(NamedTuple):
    name: str
    title: str
    kicker: str
    lead: str
    answer: Answer
    drawn: Figure | None
    said: tuple[ClaimSentence, ...]


def sections(tables: ReportTables, stills: Mapping[str, bytes] | None = None) -> list[Section]:
    """Build the sections on Figs. 15 to 17 and on the bounds. stills: section name -> PNG of its figure."""
    found = []
    for part in _parts(tables):
        still = (stills or {}).get(part.name)
        others: tuple[Provenance, ...] = ()
        listings: tuple[TableBlock, ...] = ()
        if part.answer is tables.theory_violations:
            others = (behind("theory_slopes", tables.theory_slopes),)
            listings = tuple(
                TableBlock(name, one.title, html_table(one.frame))
                for name, one in (("theory-bounds", part.answer), ("theory-slopes", tables.theory_slopes))
                if len(one.frame)
            )
        found.append(
            Section(
                part.name, part.title, part.lead, (behind(part.name, part.answer), *others), len(part.answer.frame),
                (picture(part.drawn),) if part.drawn else (), listings, kicker=part.kicker, said=part.said,
                still="data:image/png;base64," + base64.b64encode(still).decode() if still else "",
            )
        )  # fmt: skip
    return found


def drawn(tables: ReportTables) -> dict[str, Figure]:
    """Return section name -> its figure, without sections that have no rows."""
    return {part.name: part.drawn for part in _parts(tables) if part.drawn}


def claims(slopes: pd.DataFrame, prefix: str) -> tuple[ClaimSentence, ...]:
    """Return one sentence per slope whose experiment begins with the prefix."""
    rows = slopes[slopes["experiment"].str.startswith(prefix)].to_dict("records")
    return tuple(_slope(row) for row in rows)


def failures(bounds: pd.DataFrame) -> tuple[ClaimSentence, ...]:
    """Return one sentence on all bounds that hold as printed, and one for each bound that fails somewhere."""
    found = bounds[bounds["kind"] == "instance"]
    whole = found[(found["form"] == "printed") & (found["violations"] == 0)]
    said = []
    if len(whole):
        names, n = ", ".join(map(str, whole["experiment"])), f"{int(whole['n'].min()):,}"
        text = f"As printed these hold at all of {n} or more random instances each: {names}: agrees."
        said.append(ClaimSentence("agrees", text))
    for row in found[found["violations"] > 0].to_dict("records"):
        mended = found[(found["experiment"] == row["experiment"]) & (found["form"] == "repaired")]
        said.append(ClaimSentence("differs", _failure(row, mended)))
    return tuple(said)


def _parts(tables: ReportTables) -> list[_Part]:
    slopes = require(tables.theory_slopes, SLOPES)
    bounds = require(tables.theory_violations, BOUNDS)
    compression, sketch, flow = (
        require(one, POINTS) for one in (tables.theory_compression, tables.theory_sketch, tables.theory_flow)
    )
    return [
        _Part(
            "theory-compression", "Attention matrices are compressible on low-rank inputs", "ranks Fig. 15",
            "Appendix J.1: what attention loses when W_Q, W_K and W_V are projected on d̃ leading directions of the "
            "vocabulary. Left against the first singular value that is dropped, right against the width.",
            tables.theory_compression,
            _drawn("theory-compression", compression, figures.compression, "Two scatter plots on logarithmic axes: "
            "the error against the singular value, with a line of slope 1, and against the width, slope ½.",
            "Median over seeds; whiskers: range. Slopes are fitted a seed, left over d̃ ≤ d/2."),
            claims(slopes, "J.1"),
        ),
        _Part(
            "theory-sketch", "Sparse sketches, a few rows a head", "ranks Fig. 16",
            "Appendix J.2: how much of X's row space a sketch of four rows a head misses (eq. 30).",
            tables.theory_sketch,
            _drawn("theory-sketch", sketch, figures.sketching, "Left the singular values of X with the error of "
            "every number of heads where the values have it; right the error against the number of heads.",
            "Left: the median error of h heads stands at the index whose singular value it equals."),
            claims(slopes, "J.2"),
        ),
        _Part(
            "theory-flow", "More heads lift more singular values", "ranks Fig. 17", FIG_17, tables.theory_flow,
            _drawn("theory-flow", flow, figures.flow, "Line chart of relative singular values against their index on "
            "a logarithmic axis: of the input, and of the layer's output for each number of heads.", "One seed."),
            claims(slopes, "J.3"),
        ),
        _Part(
            "theory-bounds", "Do the theorems hold at every instance?", "rank Theorems 1 to 6", BOUND_LEAD,
            tables.theory_violations,
            _drawn("theory-bounds", bounds[bounds["kind"] == "instance"], figures.ratios, "Dot plot of the median and "
            "the largest share of each bound that random instances use up, sorted, with a line at 1.",
            "Filled: as printed; open: as repaired. Shares under 0.001 stand at 0.001."),
            (*failures(bounds), *claims(slopes, "Theorem"), *claims(slopes, "Corollary")),
        ),
    ]  # fmt: skip


def _drawn(name: str, frame: pd.DataFrame, draw: Any, alt: str, caption: str) -> Figure | None:
    return Figure(name, draw(frame), alt, caption) if len(frame) else None


def _slope(row: Mapping[Hashable, Any]) -> ClaimSentence:
    name = str(row["experiment"])
    if name.startswith(RATE):
        about = f"for {name.partition(', ')[2]} singular values fall by {number(row['claimed'])} or more a step of j"
    else:
        about = CLAIMS.get(name, f"slope {number(row['claimed'])}")
    sure = f", 95 % interval {number(row['low'])} to {number(row['high'])}" if _there(row["low"]) else ""
    text = f"The paper ({name}): {about}. Here: slope {number(row['slope'])}{sure}, {int(row['n_seeds'])} seeds"
    return ClaimSentence(str(row["verdict"]), f"{text}: {row['verdict']}.")


def _failure(row: Mapping[Hashable, Any], mended: pd.DataFrame) -> str:
    name = str(row["experiment"])
    text = f"{name}, {row['form']}: fails at {int(row['violations']):,} of {int(row['n']):,} random instances"
    text += f", at worst {number(row['worst_y'])} against a bound of {number(row['worst_bound'])} "
    text += f"(seed {int(row['worst_seed'])}, instance {int(row['worst_instance'])}): differs."
    if name in MENDED:
        text += f" Where: {MENDED[name]}."
    if len(mended):
        one = mended.iloc[0]
        text += f" Repaired it fails at {int(one['violations']):,} of {int(one['n']):,}, and uses up at most "
        text += f"{number(one['ratio_largest'])} of the bound."
    return text


def _there(value: Any) -> bool:
    return value is not None and not math.isnan(float(value))
