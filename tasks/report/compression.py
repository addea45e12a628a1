"""Figures of a study of compressed models, their captions, and the verdict on the claim on the frontier."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tsfmscope.tasks.report.page.verdicts import ClaimSentence
from tsfmscope.tasks.report.plots import compression as figures
from tsfmscope.tasks.report.plots.compression import READ
from tsfmscope.tasks.report.tables import StudyTables, require

if TYPE_CHECKING:
    import pandas as pd

LEADS = {
    "frontier": "Forecast error against time, both relative to the dense model: left is faster, low is more accurate. "
    "Local baselines are fitted anew on every series, on the same windows, scored by the same code, in the same run.",
    "compressed": "What is lost when the attention of a trained model is cut, by method and by what is left of it. 1 "
    "is the original.",
    "pretrained": "Models pretrained from random weights with narrow heads, relative to the dense model of the same "
    "seed: ranks that grow with depth (flow) against flat ones.",
}
COLUMNS = {
    "frontier": (
        "base", "family", "model", "kind", "attention_ratio", "n_cells", "n_windows", "wql_ratio", "time_ratio",
        "seconds", "on_frontier",
    ),
    "compressed": (
        "whose", "family", "model", "method", "size", "rank_ratio", "wql_ratio", "mase_ratio", "overlap", "lppl",
    ),
    "pretrained": ("whose", "family", "line", "model", "schedule", "size", "quantity", "value"),
}  # fmt: skip
BEATEN = (
    "The paper (Appendix K): given any local method, there is a compressed Chronos-Bolt model that is both faster and "
    "more accurate."
)
BOLT = "chronos-bolt"
# Kinds that are not compressed models in the sense of Yu et al. 2026; reading weights in another
# precision removes no parameters.
NOT_CUT = ("baseline", "dense", READ)
# Figure, alternative text, caption, title.
Made = tuple[Any, str, str, str]


def said(study: StudyTables) -> list[ClaimSentence]:
    """Return the sentence on local methods; empty unless the study's plot is the frontier."""
    if "frontier" not in study.ranks:
        return []
    return [beaten(require(study.ranks["frontier"], COLUMNS["frontier"]))]


def beaten(frame: pd.DataFrame) -> ClaimSentence:
    """Check whether, for each local baseline, a compressed Chronos-Bolt is both faster and more accurate.

    frame: `COLUMNS["frontier"]`. The check compares point values of one run, without an interval.
    """
    rows = frame[frame["family"] == BOLT]
    local = rows[rows["kind"] == "baseline"].dropna(subset=["time_ratio", "wql_ratio"])
    cut = rows[~rows["kind"].isin(NOT_CUT)].dropna(subset=["time_ratio", "wql_ratio"])
    if rows.empty:
        return ClaimSentence(
            "not-comparable", f"{BEATEN} Here: not comparable, because no Chronos-Bolt is in this study."
        )
    lacks = [what for what, part in (("local method", local), ("compressed Chronos-Bolt", cut)) if part.empty]
    if lacks:
        return ClaimSentence(
            "undecided", f"{BEATEN} Here: undecided, because no {' and no '.join(lacks)} has score and time."
        )
    told, all_beaten = [], True
    for name, one in local.groupby("model", sort=True):
        faster = cut.merge(one, on="base", suffixes=("", "_local"))
        won = faster[
            (faster["time_ratio"] < faster["time_ratio_local"]) & (faster["wql_ratio"] < faster["wql_ratio_local"])
        ].sort_values("wql_ratio")
        all_beaten &= len(won) > 0
        told.append(f"{name} by {won['model'].iloc[0]}" if len(won) else f"{name} by none")
    verdict = "agrees" if all_beaten else "differs"
    return ClaimSentence(verdict, f"{BEATEN} Here, one run on this machine: {', '.join(told)}: {verdict}.")


def _frontier(frame: pd.DataFrame, models: Sequence[str]) -> Iterator[Made]:
    if frame[["time_ratio", "wql_ratio"]].dropna().empty:
        return
    best = frame[frame["on_frontier"] & frame["time_ratio"].notna()].sort_values(["base", "time_ratio"])
    told = [f"{base}: {', '.join(part['model'])}" for base, part in best.groupby("base", sort=True)]
    windows, cells = int(frame["n_windows"].max()), int(frame["n_cells"].max())
    caption = (
        f"Geometric means over {cells} data sets and conditions, {windows:,} windows that all models forecast. "
        "Time is the pipeline's own clock per series: warm jobs of one run that ran next to other jobs; for baselines "
        "the fit. Baselines are statsforecast's and probabilistic: seasonal-naive has prediction intervals. "
        f"Small marks: little of the attention is left. On the frontier, from fast to accurate: {'; '.join(told)}."
    )
    if (frame["kind"] == READ).any():
        caption += " Open stars: the dense model's weights read otherwise, as in bfloat16; nothing is cut."
    alt = f"Scatter plots of relative forecast error against relative time, {frame['base'].nunique()} panels, "
    alt += f"{len(frame)} points, both axes logarithmic."
    yield figures.frontier(frame), alt, caption, ""


def _compressed(frame: pd.DataFrame, models: Sequence[str]) -> Iterator[Made]:
    alt = "Line charts of scores relative to the original against the share of the attention that is left, a line a "
    alt += f"method: {', '.join(sorted(set(frame.loc[frame['whose'] == 'measured', 'method']))) or 'none measured'}."
    caption = (
        "Grey: the paper's Table 2, base-sized models, cut by svd; its size is mean rank over width (dashed: in-domain "
        "or T5, dotted: zero-shot). Ours is the share of attention parameters that is left, which for thin factors of "
        "svd is up to twice the mean rank over width."
    )
    yield figures.compressed(frame), alt, caption, ""


def _pretrained(frame: pd.DataFrame, models: Sequence[str]) -> Iterator[Made]:
    ours = frame[frame["whose"] == "measured"]
    alt = f"Line charts of scores relative to the dense model against size, {ours['model'].nunique()} models."
    caption = "Lines: mean over seeds, points: seeds; dashed: flat ranks; grey: as printed."
    if frame["quantity"].str.startswith("score ").any():
        caption += (
            " The heads of the paper's columns do not say which is WQL and which MASE: score a and b, as they come."
        )
    yield figures.pretrained(frame), alt, caption, ""


DRAW: dict[str, Callable[[Any, Sequence[str]], Iterator[Made]]] = {
    "frontier": _frontier,
    "compressed": _compressed,
    "pretrained": _pretrained,
}
