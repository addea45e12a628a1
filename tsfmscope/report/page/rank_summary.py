"""Summary sentences on the questions of Yu et al. 2026: growth of rank, and compression by low ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tsfmscope.report.charts.style import format_power
from tsfmscope.report.page import verdicts
from tsfmscope.report.page.verdicts import format_number
from tsfmscope.report.plots import compressed, frontier
from tsfmscope.report.plots import growth as growth_plot
from tsfmscope.report.tables import ReportTables, StudyTables, require

if TYPE_CHECKING:
    import pandas as pd

# Tolerance of the numerical rank, as in Yu et al. 2026, Fig. 5.
TOLERANCE = 0.01
# Conditions of a claim in `published_vs_measured` that is tested over families, or over models of few families.
OVERALL = ("over families", "over models")
# Text of the claim in the view `published_claims`.
GROWTH_CLAIM = "The rank of the layer inputs grows with depth"
# Largest share of the attention parameters that is kept; Yu et al. 2026: "cut to about a quarter of
# its size".
QUARTER = 0.25
# Largest error relative to the original that counts as no loss, as in the test of the claim on the
# quarter.
NO_LOSS = 1.05


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


def describe_growth(studies: Sequence[StudyTables]) -> list[str]:
    """Describe how rank grows through the layers, from the study with the most models.

    Empty if no study has ranks of layer inputs.
    """
    flows = [study for study in studies if "inputs" in study.answers and len(study.answers["inputs"].frame)]
    if not flows:
        return []
    study = max(flows, key=lambda flow: flow.answers["inputs"].frame["model"].nunique())
    sentences = _describe_verdicts(require(study.published, verdicts.COLUMNS))
    if ends := compare_ends(study.rows("inputs", growth_plot.COLUMNS)):
        sentences.append(
            f"The input of the first layer has {_percent(ends.first)} of the full rank, the output of the "
            f"last {_percent(ends.last)} (medians over {ends.stacks} stacks of {ends.models} models; singular values"
            f" above {format_power(-2)} of the largest). It rises in {ends.rises} of {ends.stacks}."
        )
    if ends := compare_ends(study.rows("weights", growth_plot.COLUMNS)):
        sentences.append(
            f"The rank of the query projections goes from {_percent(ends.first)} to {_percent(ends.last)} of the full"
            f" rank, and rises in {ends.rises} of {ends.stacks} stacks."
        )
    return sentences


def _describe_verdicts(published: pd.DataFrame) -> list[str]:
    """Return the verdict on the claim that rank grows with depth, over families or by model; empty if not tested."""
    claimed = published[published["claim"] == GROWTH_CLAIM]
    rows = claimed[claimed["model"].notna()]
    if len(overall := claimed[claimed["condition"].isin(OVERALL)]):
        row = overall.to_dict("records")[0]
        units = row["condition"].removeprefix("over ")
        return [
            f"Over {int(row['n'])} {units}, the slope of the rank of layer inputs along depth is "
            f"{verdicts.format_number(row['measured'])} of the full rank{verdicts.format_evidence(row)}: the claim "
            f"that it grows {verdicts.VERDICTS[row['verdict']][0]}."
        ]
    counts = Counter(rows["verdict"])
    if not len(rows):
        return []
    does_not = counts["differs"] + counts["no effect"]
    return [
        f"Tested for each model, the rank of layer inputs grows with depth in {counts['agrees']} of "
        f"{len(rows)}, does not in {does_not}, and is undecided in {counts['undecided']}."
    ]


def compare_ends(rows: pd.DataFrame) -> Ends | None:
    """Compare the ranks at TOLERANCE of the first and the last layer, over stacks of two layers or more.

    rows: columns of `plots.growth`. Ranks below the floor that rounding leaves are left out. None
    if no stack has two layers.
    """
    rows = rows[((rows["epsilon"] - TOLERANCE).abs() < TOLERANCE / 1e3) & ~rows["below_noise_floor"].astype(bool)]
    shares = rows.assign(share=rows["rank"].astype(float) / rows["full_rank"].astype(float)).sort_values("layer")
    ends = shares.groupby(["model", "stack"])["share"].agg(["first", "last", "count"])
    ends = ends[ends["count"] > 1]
    if ends.empty:
        return None
    models = ends.index.get_level_values("model").nunique()
    rises = int((ends["last"] > ends["first"]).sum())
    return Ends(float(ends["first"].median()), float(ends["last"].median()), rises, len(ends), models)


def describe_compression(studies: Sequence[StudyTables]) -> list[str]:
    """Describe the loss at a quarter of the attention, and whether a compressed model beats local methods."""
    sentences = []
    for study in studies:
        if "compressed" in study.answers:
            sentences += _describe_losses(study.rows("compressed", compressed.COLUMNS))
        if "frontier" in study.answers and len(study.answers["frontier"].frame):
            sentences.append(frontier.check_local_methods(study.rows("frontier", frontier.COLUMNS)).text)
    return sentences


def _describe_losses(rows: pd.DataFrame) -> list[str]:
    """Return one sentence per original model: the relative error of each method.

    Each method is taken at its largest size up to QUARTER.
    """
    ours = rows[(rows["whose"] == "measured") & (rows["size"] <= QUARTER + 1e-9)]
    ours = ours[ours["wql_ratio"].notna()]
    ours = ours.assign(base=[model.partition("@")[0] for model in ours["model"]])
    sentences = []
    for base, part in ours.groupby("base", sort=True):
        best = part.sort_values("size").groupby("method", sort=True).last()
        texts = ", ".join(
            f"{format_number(row['wql_ratio'])} by {method}" for method, row in best.sort_values("wql_ratio").iterrows()
        )
        without_loss = int((best["wql_ratio"] <= NO_LOSS).sum())
        sentences.append(
            f"With {_percent(float(best['size'].max()))} of the attention's parameters left, the WQL of {base} "
            f"relative to the original is {texts}; {without_loss} of {len(best)} methods stay within 5 %."
        )
    return sentences


def describe_bounds(tables: ReportTables) -> list[str]:
    """Count the bounds that hold as printed at every random instance, and the repaired bounds that do.

    Empty if no printed bound was tried.
    """
    bounds = tables.theory_violations.frame
    tried = bounds[bounds["kind"] == "instance"]
    printed = tried[tried["form"] == "printed"]
    if printed.empty:
        return []
    held, repaired = int((printed["violations"] == 0).sum()), tried[tried["form"] == "repaired"]
    instances = f"{int(printed['n'].min()):,} random instances"
    text = f"Of the paper's {len(printed)} bounds, {held} held as printed at every one of {instances}"
    if held < len(printed):
        repaired_held = int((repaired["violations"] == 0).sum())
        text += (
            f"; {len(printed) - held} failed at some. Of {len(repaired)} repaired bounds, {repaired_held} held at all"
        )
    return [text + "."]


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
