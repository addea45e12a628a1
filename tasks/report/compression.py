"""The pictures of a study of compressed models, with what they show in words, and the paper's word on the frontier."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tasks.report import compression_figures as figures
from tasks.report.compression_figures import READ
from tasks.report.tables import StudyTables, require
from tasks.report.verdicts import Said

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
NOT_CUT = ("baseline", "dense", READ)  # kinds; what is only rounded is no compressed model of the paper's
Made = tuple[Any, str, str, str]  # figure, alt, caption, title


def said(study: StudyTables) -> list[Said]:
    """The sentence on local methods, for a study whose picture is the frontier."""
    if "frontier" not in study.ranks:
        return []
    return [beaten(require(study.ranks["frontier"], COLUMNS["frontier"]))]


def beaten(frame: pd.DataFrame) -> Said:
    """Whether some compressed Chronos-Bolt is faster and more accurate than each baseline: one run, no interval."""
    rows = frame[frame["family"] == BOLT]
    local = rows[rows["kind"] == "baseline"].dropna(subset=["time_ratio", "wql_ratio"])
    cut = rows[~rows["kind"].isin(NOT_CUT)].dropna(subset=["time_ratio", "wql_ratio"])
    if rows.empty:
        return Said("not-comparable", f"{BEATEN} Here: not comparable, because no Chronos-Bolt is in this study.")
    lacks = [what for what, part in (("local method", local), ("compressed Chronos-Bolt", cut)) if part.empty]
    if lacks:
        return Said("undecided", f"{BEATEN} Here: undecided, because no {' and no '.join(lacks)} has score and time.")
    told, all_beaten = [], True
    for name, one in local.groupby("model", sort=True):
        faster = cut.merge(one, on="base", suffixes=("", "_local"))
        won = faster[
            (faster["time_ratio"] < faster["time_ratio_local"]) & (faster["wql_ratio"] < faster["wql_ratio_local"])
        ].sort_values("wql_ratio")
        all_beaten &= len(won) > 0
        told.append(f"{name} by {won['model'].iloc[0]}" if len(won) else f"{name} by none")
    verdict = "agrees" if all_beaten else "differs"
    return Said(verdict, f"{BEATEN} Here, one run on this machine: {', '.join(told)}: {verdict}.")


def _frontier(frame: pd.DataFrame, models: Sequence[str]) -> Iterator[Made]:
    if frame[["time_ratio", "wql_ratio"]].dropna().empty:
        return
    best = frame[frame["on_frontier"] & frame["time_ratio"].notna()].sort_values(["base", "time_ratio"])
    told = [f"{base}: {', '.join(part['model'])}" for base, part in best.groupby("base", sort=True)]
    windows, cells = int(frame["n_windows"].max()), int(frame["n_cells"].max())
    caption = (
        f"Geometric means over {cells} data sets and conditions, {windows:,} windows that all have a score on. Time is "
        "the pipeline's own clock a series, warm jobs of one run beside other jobs, a fit's time for the baselines. "
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
