"""The rank paper's questions, answered: does rank grow with depth, and do low ranks let one compress?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tasks.report import compression, ranks, scales, verdicts
from tasks.report.tables import ReportTables, StudyTables, require
from tasks.report.verdicts import number

if TYPE_CHECKING:
    import pandas as pd

TOLERANCE = 0.01  # of a numerical rank, as in the paper's Fig. 5
GROWS = "The rank of what a layer is given grows with depth"  # as in the view `published_claims`
QUARTER = 0.25  # of the attention's parameters, as in the paper's "cut to about a quarter of its size"
FRUGAL = 1.05  # times the original's error that still counts as no loss, as the claim on the quarter is tested


class Ends(NamedTuple):
    """Median share of the most possible rank at the first and the last layer, and how many of the stacks rise."""

    first: float
    last: float
    rises: int
    stacks: int
    models: int


def growth(studies: Sequence[StudyTables]) -> list[str]:
    """How rank grows through the layers, of the study with most models. Nothing where no study pictures it."""
    flows = [study for study in studies if "inputs" in study.ranks and len(study.ranks["inputs"].frame)]
    if not flows:
        return []
    study = max(flows, key=lambda one: one.ranks["inputs"].frame["model"].nunique())
    said = _tested(require(study.published, verdicts.COLUMNS))
    if found := ends(require(study.ranks["inputs"], ranks.COLUMNS["inputs"])):
        said.append(
            f"What the first layer is given has {_percent(found.first)} of the most possible rank, what leaves the "
            f"last {_percent(found.last)} (medians over {found.stacks} stacks of {found.models} models; singular values"
            f" above {scales.power(-2)} of the largest). It rises in {found.rises} of {found.stacks}."
        )
    if "weights" in study.ranks and (found := ends(require(study.ranks["weights"], ranks.COLUMNS["weights"]))):
        said.append(
            f"The rank of the query projections goes from {_percent(found.first)} to {_percent(found.last)} of the most"
            f" possible, and rises in {found.rises} of {found.stacks} stacks."
        )
    return said


def _tested(published: pd.DataFrame) -> list[str]:
    """How many models' tests say that rank grows, that it falls, and neither: the claim of a study of the flow."""
    rows = published[(published["claim"] == GROWS) & published["model"].notna()]
    found = Counter(rows["verdict"])
    if not len(rows):
        return []
    return [
        f"Tested model by model, the rank of what a layer is given grows with depth in {found['agrees']} of "
        f"{len(rows)}, does not in {found['differs']}, and is undecided in {found['undecided']}."
    ]


def ends(rows: pd.DataFrame) -> Ends | None:
    """First and last layer of every stack, at TOLERANCE, of stacks of two layers or more. None where there is none.

    rows: columns of `ranks.COLUMNS["inputs"]`, of which a rank below rounding's floor says nothing and is left out.
    """
    rows = rows[((rows["epsilon"] - TOLERANCE).abs() < TOLERANCE / 1e3) & ~rows["meaningless"].astype(bool)]
    shares = rows.assign(share=rows["rank"].astype(float) / rows["full_rank"].astype(float)).sort_values("layer")
    found = shares.groupby(["model", "stack"])["share"].agg(["first", "last", "count"])
    found = found[found["count"] > 1]
    if found.empty:
        return None
    models = found.index.get_level_values("model").nunique()
    rises = int((found["last"] > found["first"]).sum())
    return Ends(float(found["first"].median()), float(found["last"].median()), rises, len(found), models)


def compressing(studies: Sequence[StudyTables]) -> list[str]:
    """What is lost at a quarter of the attention, and whether a compressed model beats local methods."""
    said = []
    for study in studies:
        if "compressed" in study.ranks:
            said += _lost(require(study.ranks["compressed"], compression.COLUMNS["compressed"]))
        if "frontier" in study.ranks and len(study.ranks["frontier"].frame):
            said.append(compression.beaten(require(study.ranks["frontier"], compression.COLUMNS["frontier"])).text)
    return said


def _lost(rows: pd.DataFrame) -> list[str]:
    """A sentence an original model: by each method at the largest size up to a quarter, the error over its own."""
    ours = rows[(rows["whose"] == "measured") & (rows["size"] <= QUARTER + 1e-9)]
    ours = ours[ours["wql_ratio"].notna()]
    ours = ours.assign(base=[model.partition("@")[0] for model in ours["model"]])
    said = []
    for base, part in ours.groupby("base", sort=True):
        best = part.sort_values("size").groupby("method", sort=True).last()
        told = ", ".join(
            f"{number(one['wql_ratio'])} by {method}" for method, one in best.sort_values("wql_ratio").iterrows()
        )
        kept = int((best["wql_ratio"] <= FRUGAL).sum())
        said.append(
            f"Cut to {_percent(float(best['size'].max()))} of its attention's parameters, {base} has this many times "
            f"its own forecast error (WQL): {told}; {kept} of {len(best)} stay{'s' * (kept == 1)} within 5 %."
        )
    return said


def theorems(tables: ReportTables) -> list[str]:
    """How many bounds hold as printed at every random instance, and how many do once repaired."""
    bounds = tables.theory_violations.frame
    tried = bounds[bounds["kind"] == "instance"]
    printed = tried[tried["form"] == "printed"]
    if printed.empty:
        return []
    whole, repaired = printed[printed["violations"] == 0], tried[tried["form"] == "repaired"]
    text = f"{len(whole)} of its {len(printed)} bounds hold as printed at all of {int(printed['n'].min()):,} random "
    text += "instances each"
    if len(whole) < len(printed):
        mended = Counter(repaired["violations"] == 0)[True]
        text += f"; the others fail at some, and of {len(repaired)} repaired ones {mended} fail at none"
    return [text + "."]


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
