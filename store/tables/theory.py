"""Table of the theorems of Yu et al. 2026 at random instances, and of the experiments of their Appendix J."""

from __future__ import annotations

from tsfmscope.store.tables.columns import F64, FLAG, I16, I32, KEY, SEED, TEXT, Table
from tsfmscope.store.tables.columns import Column as C

RANK = "rank_structure.md"

TABLES = (
    Table(
        "theory",
        "one point of a numerical experiment, or one instance of a theorem with both sides of its bound",
        (
            C("experiment", TEXT, "experiment (J.1 rank, J.2 sparse ...) or statement (Theorem 2 ...)", "", RANK),
            C("kind", TEXT, "point (of an experiment) or instance (of a statement)"),
            C(
                "form",
                TEXT,
                "of a bound: printed (the paper's words or construction) or repaired (with what its proof lacks)",
                null=True,
            ),
            SEED,
            C(
                "instance",
                I32,
                "of an instance: its number; seed and statement make it again",
                null=True,
            ),
            C("heads", I16, "heads, where there are several; 0 of a spectrum: that of the input", "heads", null=True),
            C("setting", TEXT, "sizes, spectrum and parameters that were drawn or given, as JSON"),
            C("x", F64, "what is changed, or the index or parameter at which a bound is tightest"),
            C("y", F64, "what is measured: error, singular value, count or effective rank"),
            C("side", TEXT, "of a bound: upper (y at most) or lower (y at least)", null=True),
            C("bound", F64, "the other side of the inequality, in y's unit", null=True),
            C("floor", F64, "what rounding leaves unsure of y, in y's unit", null=True),
            C("holds", FLAG, "whether the bound holds, beyond a relative 1e-9 and the floor", null=True),
            C("fitted", FLAG, "whether the point takes part in a slope"),
            C("scale", TEXT, "of a slope: log-log (ln y against ln x) or log-linear (ln y against x)", null=True),
            C("claimed", F64, "slope that the paper says or implies", "", RANK + " J", null=True),
            KEY,
        ),
        stages=("theory",),
        key=("experiment", "form", "seed", "instance", "heads", "x", "setting"),
    ),
)
