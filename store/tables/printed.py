"""Tables of the numbers and claims that the two papers print; their rows are files of store/published."""

from __future__ import annotations

from store.tables.columns import F64, I32, I64, TEXT, Table
from store.tables.columns import Column as C

_FIGURE = C("figure", TEXT, "figure, table or section of a paper, as a study names it")
_SOURCE = C("source", TEXT, "place in the paper")
_TEXT = C("published_text", TEXT, "number, as it is printed")

TABLES = (
    Table(
        "printed_isotropy",
        "one number of Shelim et al. 2025",
        (
            _FIGURE,
            _SOURCE,
            C("family", TEXT, "model family"),
            C("dataset", TEXT, "data set, by its name in the paper"),
            C("context", I32, "context length, where the paper gives it", "steps", null=True),
            C("noise", F64, "standard deviation of the noise", "s.d. of the series"),
            C("layer", I64, "layer, from 1; null: the last", null=True),
            C("depth", I32, "layers of the family's model in the paper, by Table 1", "layers"),
            C("quantity", TEXT, "nmse, zeta_adjusted, d(0.8) or variance in 3 components"),
            _TEXT,
        ),
        key=("figure", "family", "dataset", "context", "noise", "layer", "quantity"),
        is_printed=True,
    ),
    Table(
        "printed_ranks",
        "one number of Yu et al. 2026 about a compressed or narrow model, relative to the original",
        (
            _FIGURE,
            C("family", TEXT, "model family"),
            C("line", TEXT, "benchmark, or kind of model; null of a number that several lines share", null=True),
            C("size", F64, "mean rank over width (Table 2), or nominal size ratio", "ratio", null=True),
            C("first", F64, "head width of the first layer", "dimensions", null=True),
            C("growth", F64, "exponent by which head widths grow with depth", null=True),
            C("quantity", TEXT, "WQL, MASE, overlap, LPPL, time, space; score a or b where the paper names none"),
            _TEXT,
        ),
        key=("figure", "family", "line", "size", "first", "growth", "quantity"),
        is_printed=True,
    ),
    Table(
        "printed_claims",
        "one claim in words of a paper, and the statistic of `inference` that tests it",
        (
            _FIGURE,
            _SOURCE,
            C("claim", TEXT, "claim in words"),
            C("answer", TEXT, "view that shows the statistic"),
            C("measure", TEXT, "measure, as in `inference`"),
            C("grouping", TEXT, "grouping, as in `inference`"),
            C("statistic", TEXT, "statistic, as in `inference`"),
            C("centre", F64, "value of the statistic if nothing is there"),
            C("side", I32, "side of centre on which the claim holds: -1 below, 1 above"),
            C("margin", F64, "largest distance from centre that counts as no effect; chosen by this project"),
        ),
        key=("figure", "claim", "answer", "grouping"),
        is_printed=True,
    ),
)
