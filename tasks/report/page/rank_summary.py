"""Summary sentences on the questions of Yu et al. 2026: growth of rank, and compression by low ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tsfmscope.tasks.report import colorscale
from tsfmscope.tasks.report.page import verdicts
from tsfmscope.tasks.report.page.verdicts import number
from tsfmscope.tasks.report.plots import compressed, frontier
from tsfmscope.tasks.report.plots import growth as growth_plot
from tsfmscope.tasks.report.tables import ReportTables, StudyTables, require

if TYPE_CHECKING:
    import pandas as pd

# Tolerance of the numerical rank, as in Yu et al. 2026, Fig. 5.
TOLERANCE = 0.01
# Text of the claim in the view `published_claims`.
GROWS = "The rank of what a layer is given grows with depth"
# Largest share of the attention parameters that is kept; Yu et al. 2026: "cut to about a quarter of
# its size".
QUARTER = 0.25
# Largest error relative to the original that counts as no loss, as in the test of the claim on the
# quarter.
FRUGAL = 1.05


class Ends(NamedTuple):
    """Rank at the first and the last layer of a set of stacks.

    first, last: median over stacks of the rank as a share of the full rank.
    rises: number of stacks whose share is larger at the last layer than at the first.
    """

    first: float
    last: float
    rises: int
    stacks: int
    models: int


def growth(studies: Sequence[StudyTables]) -> list[str]:
    """Describe how rank grows through the layers, from the study with the most models.

    Empty if no study has ranks of layer inputs.
    """
    flows = [study for study in studies if "inputs" in study.answers and len(study.answers["inputs"].frame)]
    if not flows:
        return []
    study = max(flows, key=lambda flow: flow.answers["inputs"].frame["model"].nunique())
    said = _tested(require(study.published, verdicts.COLUMNS))
    if found := ends(study.rows("inputs", growth_plot.COLUMNS)):
        said.append(
            f"What the first layer is given has {_percent(found.first)} of the most possible rank, what leaves the "
            f"last {_percent(found.last)} (medians over {found.stacks} stacks of {found.models} models; singular values"
            f" above {colorscale.power(-2)} of the largest). It rises in {found.rises} of {found.stacks}."
        )
    if found := ends(study.rows("weights", growth_plot.COLUMNS)):
        said.append(
            f"The rank of the query projections goes from {_percent(found.first)} to {_percent(found.last)} of the most"
            f" possible, and rises in {found.rises} of {found.stacks} stacks."
        )
    return said


def _tested(published: pd.DataFrame) -> list[str]:
    """Count models by the verdict on the claim that rank grows with depth; empty if it was not tested."""
    rows = published[(published["claim"] == GROWS) & published["model"].notna()]
    found = Counter(rows["verdict"])
    if not len(rows):
        return []
    return [
        f"Tested model by model, the rank of what a layer is given grows with depth in {found['agrees']} of "
        f"{len(rows)}, does not in {found['differs']}, and is undecided in {found['undecided']}."
    ]


def ends(rows: pd.DataFrame) -> Ends | None:
    """Compare the ranks at TOLERANCE of the first and the last layer, over stacks of two layers or more.

    rows: columns of `plots.growth`. Ranks below the floor that rounding leaves are left out. None
    if no stack has two layers.
    """
    rows = rows[((rows["epsilon"] - TOLERANCE).abs() < TOLERANCE / 1e3) & ~rows["below_noise_floor"].astype(bool)]
    shares = rows.assign(share=rows["rank"].astype(float) / rows["full_rank"].astype(float)).sort_values("layer")
    found = shares.groupby(["model", "stack"])["share"].agg(["first", "last", "count"])
    found = found[found["count"] > 1]
    if found.empty:
        return None
    models = found.index.get_level_values("model").nunique()
    rises = int((found["last"] > found["first"]).sum())
    return Ends(float(found["first"].median()), float(found["last"].median()), rises, len(found), models)


def compressing(studies: Sequence[StudyTables]) -> list[str]:
    """Describe the loss at a quarter of the attention, and whether a compressed model beats local methods."""
    said = []
    for study in studies:
        if "compressed" in study.answers:
            said += _lost(study.rows("compressed", compressed.COLUMNS))
        if "frontier" in study.answers and len(study.answers["frontier"].frame):
            said.append(frontier.check_local_methods(study.rows("frontier", frontier.COLUMNS)).text)
    return said


def _lost(rows: pd.DataFrame) -> list[str]:
    """Return one sentence per original model: the relative error of each method.

    Each method is taken at its largest size up to QUARTER.
    """
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
    """Count the bounds that hold as printed at every random instance, and the repaired bounds that do.

    Empty if no printed bound was tried.
    """
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
