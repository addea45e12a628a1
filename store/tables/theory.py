"""Table of the theorems of Yu et al. 2026 at random instances, and of the experiments of their Appendix J."""

from __future__ import annotations

from store.tables.columns import F64, FLAG, I16, I32, TEXT, Table
from store.tables.columns import Column as C
from store.tables.shared import KEY, SEED

RANK = "Yu et al. 2026"

TABLES = (
    Table(
        "theory",
        "one point of a numerical experiment, or one instance of a theorem with both sides of its bound",
        (
            C("experiment", TEXT, "experiment (J.1 rank, J.2 sparse ...) or statement (Theorem 2 ...)", "", RANK),
            C("kind", TEXT, "kind of row: point (of an experiment) or instance (of a statement)"),
            C(
                "form",
                TEXT,
                "bounds only: printed (as in the paper) or repaired (with the term that its proof lacks)",
                null=True,
            ),
            SEED,
            C("instance", I32, "instances only: index; seed, statement and index reproduce the instance", null=True),
            C(
                "heads",
                I16,
                "number of heads, if there are several; 0 for the spectrum of the input",
                "heads",
                null=True,
            ),
            C("setting", TEXT, "sizes, spectrum and parameters, sampled or given (JSON)"),
            C("x", F64, "variable of the experiment, or index or parameter at which the bound is tightest"),
            C("y", F64, "measured quantity: error, singular value, count or effective rank"),
            C("side", TEXT, "bounds only: upper (y is at most bound) or lower (y is at least bound)", null=True),
            C("bound", F64, "other side of the inequality, in the unit of y", null=True),
            C("floor", F64, "rounding error of y, in the unit of y", null=True),
            C("holds", FLAG, "whether the bound holds up to a relative error of 1e-9 and the floor", null=True),
            C("fitted", FLAG, "whether the point is used in the fit of a slope"),
            C("scale", TEXT, "slopes only: log-log (ln y against ln x) or log-linear (ln y against x)", null=True),
            C("claimed", F64, "slope that the paper states or implies", "", f"{RANK}, Appendix J", null=True),
            KEY,
        ),
        stages=("theory",),
        key=("experiment", "form", "seed", "instance", "heads", "x", "setting"),
    ),
)
