"""Sections on the theorems of Yu et al. 2026: their statements, random instances and fitted slopes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from tsfmscope.report.charts import theory as figures
from tsfmscope.report.page.html_table import build_table
from tsfmscope.report.page.sections import (
    Figure,
    Section,
    TableBlock,
    embed_figure,
    make_provenance,
)
from tsfmscope.report.page.verdicts import ClaimSentence, format_number, is_present
from tsfmscope.report.tables import Answer, ReportTables, require

if TYPE_CHECKING:
    import pandas as pd

    from tsfmscope.report.charts.style import Chart

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
REPAIRS = {
    "Theorem 3.1": "U repeats columns of Ξ: the proof bounds a sum of L vectors by √L times the largest, "
    "not L times. Repaired: √d σ times min(3 √L, 3e √m), m the largest number of times that U repeats a column",
    "Theorem 5": "the same step as Theorem 3.1, head by head; the same repair",
    "Theorem 3.2": "L above 4d + 1, where the construction's weights fall below ½. Repaired: log(4L) for log(4d)",
    "Corollary 2": "|w| above 1, which moves the poles into the ellipse. Repaired: |w| ≤ 1",
    "Corollary 1 upper": "the index: the proof's own arithmetic gives ⌊(k − 1)/(h + 1)⌋ + 1, not ⌊(k + 1)/(h + 1)⌋ + 1",
    "Corollary 1 lower": "heads of fewer dimensions than heads: the index needs k ≤ d − h, not k ≤ d − d_h",
    "Theorem 6.2": "one head, whose shared vector then is its own first. Repaired: the head's next vector instead",
}


class _Texts(NamedTuple):
    """Texts of one section. kicker: the figure or theorems of the paper. alt, caption: of its figure."""

    name: str
    title: str
    kicker: str
    lead: str
    alt: str
    caption: str


COMPRESSION = _Texts(
    "theory-compression",
    "Attention matrices are compressible on low-rank inputs",
    "Yu et al. 2026, Fig. 15",
    "Appendix J.1: error of attention when W_Q, W_K and W_V are projected on d̃ leading directions of the vocabulary. "
    "Left: against the first singular value that is dropped. Right: against the width.",
    "Two scatter plots on logarithmic axes: the error against the singular value, with a line of slope 1, and against "
    "the width, with a line of slope ½.",
    "Error: ‖Y − Ỹ‖, median over seeds; whiskers: smallest to largest. Dashed: the slope that the paper claims, at an "
    "arbitrary height. One slope is fitted per seed, in the left panel over d̃ ≤ d/2.",
)
SKETCH = _Texts(
    "theory-sketch",
    "Sparse sketches, a few rows per head",
    "Yu et al. 2026, Fig. 16",
    "Appendix J.2: share of the row space of X that a sketch with four rows per head misses (eq. 30).",
    "Left: the singular values of X, and the error of every number of heads at the singular value that equals it. "
    "Right: the error against the number of heads.",
    "Left: the median error of h heads stands at the index of the singular value that equals it. Right: median over "
    "seeds; whiskers: smallest to largest. Sparse and dense sketches are moved apart sideways, as they coincide.",
)
FLOW = _Texts(
    "theory-flow",
    "More heads lift more singular values",
    "Yu et al. 2026, Fig. 17",
    "Appendix J.3: the same X and weights, split into more and more heads. Yu et al. 2026 print neither sizes nor "
    "scales. With weights as bounded by Theorem 4 the scores hardly differ and the rank stays, so here the scores have "
    "standard deviation 1.",
    "Line chart of relative singular values against their index on a logarithmic axis: of the input, and of the "
    "layer's output for each number of heads.",
    "Relative singular values of X (dashed) and of the output of the layer, one line per number of heads. One seed.",
)
BOUND = _Texts(
    "theory-bounds",
    "Do the theorems hold at every instance?",
    "rank Theorems 1 to 6",
    "Both sides of every bound at random instances: random shapes, spectra and heads; weights scaled to equality in "
    "the hypotheses; and the proofs' own constructions. Where the paper writes O(·), the constant is that of its "
    "proof. A bound that fails as printed is shown with the form that its proof supports, which must never fail (a "
    "check of results.duckdb). Each row of the table gives its worst instance; "
    "tsfmscope.theory.experiments.instance reproduces it from statement, seed and number.",
    "Dot plot of the median and the largest share of each bound that random instances use up, sorted. A line is at 1.",
    "Filled: as printed; open: as repaired. Shares below 0.001 are drawn at 0.001.",
)


class _Part(NamedTuple):
    """Contents of one section. answers: the first is the one that the figure is drawn from."""

    texts: _Texts
    answers: Mapping[str, Answer]
    figure: Figure | None
    claims: tuple[ClaimSentence, ...]
    tables: Mapping[str, Answer] = MappingProxyType({})


def build_sections(tables: ReportTables) -> list[Section]:
    """Build the sections on Figs. 15 to 17 and on the bounds."""
    return [_build_section(part) for part in _build_parts(tables)]


def draw_figures(tables: ReportTables) -> dict[str, Figure]:
    """Return section name -> its figure, without sections that have no rows."""
    return {part.texts.name: part.figure for part in _build_parts(tables) if part.figure}


def describe_slopes(slopes: pd.DataFrame, prefix: str) -> tuple[ClaimSentence, ...]:
    """Return one sentence per slope whose experiment begins with the prefix."""
    rows = slopes[slopes["experiment"].str.startswith(prefix)].to_dict("records")
    return tuple(_describe_slope(row) for row in rows)


def describe_failures(bounds: pd.DataFrame) -> tuple[ClaimSentence, ...]:
    """Return one sentence on all bounds that hold as printed, and one for each bound that fails somewhere."""
    instances = bounds[bounds["kind"] == "instance"]
    whole = instances[(instances["form"] == "printed") & (instances["violations"] == 0)]
    sentences = []
    if len(whole):
        names, n = ", ".join(map(str, whole["experiment"])), f"{int(whole['n'].min()):,}"
        text = f"Bounds that hold as printed at every one of {n} or more random instances: {names}: agrees."
        sentences.append(ClaimSentence("agrees", text))
    for row in instances[instances["violations"] > 0].to_dict("records"):
        repaired = instances[(instances["experiment"] == row["experiment"]) & (instances["form"] == "repaired")]
        sentences.append(ClaimSentence("differs", _describe_failure(row, repaired)))
    return tuple(sentences)


def _build_section(part: _Part) -> Section:
    texts = part.texts
    return Section(
        texts.name,
        texts.title,
        texts.lead,
        tuple(make_provenance(name, answer) for name, answer in part.answers.items()),
        len(part.answers[texts.name].frame),
        (embed_figure(part.figure),) if part.figure else (),
        tuple(
            TableBlock(name, answer.title, build_table(answer.frame))
            for name, answer in part.tables.items()
            if len(answer.frame)
        ),
        kicker=texts.kicker,
        claims=part.claims,
    )


def _build_parts(tables: ReportTables) -> list[_Part]:
    slopes = require(tables.theory_slopes, SLOPES)
    return [
        _build_experiment(
            COMPRESSION, tables.theory_compression, figures.draw_compression, describe_slopes(slopes, "J.1")
        ),
        _build_experiment(SKETCH, tables.theory_sketch, figures.draw_sketching, describe_slopes(slopes, "J.2")),
        _build_experiment(FLOW, tables.theory_flow, figures.draw_flow, describe_slopes(slopes, "J.3")),
        _build_bounds(tables, slopes),
    ]


def _build_experiment(
    texts: _Texts, answer: Answer, draw: Callable[[pd.DataFrame], Chart], claims: tuple[ClaimSentence, ...]
) -> _Part:
    """Build the part on one experiment of Appendix J; without a figure if the answer has no points."""
    frame = require(answer, POINTS)
    return _Part(texts, {texts.name: answer}, _draw(texts, frame, draw), claims)


def _build_bounds(tables: ReportTables, slopes: pd.DataFrame) -> _Part:
    bounds = require(tables.theory_violations, BOUNDS)
    return _Part(
        BOUND,
        {BOUND.name: tables.theory_violations, "theory_slopes": tables.theory_slopes},
        _draw(BOUND, bounds[bounds["kind"] == "instance"], figures.draw_ratios),
        (*describe_failures(bounds), *describe_slopes(slopes, "Theorem"), *describe_slopes(slopes, "Corollary")),
        {BOUND.name: tables.theory_violations, "theory-slopes": tables.theory_slopes},
    )


def _draw(texts: _Texts, frame: pd.DataFrame, draw: Callable[[pd.DataFrame], Chart]) -> Figure | None:
    return Figure(texts.name, draw(frame), texts.alt, texts.caption) if len(frame) else None


def _describe_slope(row: Mapping[Hashable, Any]) -> ClaimSentence:
    name, claimed = str(row["experiment"]), format_number(row["claimed"])
    claim = CLAIMS.get(name, f"slope {claimed}")
    if name.startswith(RATE):
        claim = f"for {name.partition(', ')[2]} singular values fall by {claimed} or more per step of j"
    text = f"Yu et al. 2026 ({name}): {claim}. Here: slope {format_number(row['slope'])}"
    if is_present(row["low"]):
        text += f", 95 % interval {format_number(row['low'])} to {format_number(row['high'])}"
    return ClaimSentence(str(row["verdict"]), f"{text}, {int(row['n_seeds'])} seeds: {row['verdict']}.")


def _describe_failure(row: Mapping[Hashable, Any], repaired: pd.DataFrame) -> str:
    name = str(row["experiment"])
    text = f"{name}, {row['form']}: fails at {int(row['violations']):,} of {int(row['n']):,} random instances"
    text += f", at worst {format_number(row['worst_y'])} against a bound of {format_number(row['worst_bound'])} "
    text += f"(seed {int(row['worst_seed'])}, instance {int(row['worst_instance'])}): differs."
    if name in REPAIRS:
        text += f" Where: {REPAIRS[name]}."
    if len(repaired):
        repair = repaired.iloc[0]
        text += f" Repaired, it fails at {int(repair['violations']):,} of {int(repair['n']):,} and uses up at most "
        text += f"{format_number(repair['ratio_largest'])} of the bound."
    return text
