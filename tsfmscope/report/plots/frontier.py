"""Accuracy against time of compressed models and baselines, relative to the dense model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tsfmscope.report.charts import frontier
from tsfmscope.report.charts.compression import READ
from tsfmscope.report.page.sections import Figure
from tsfmscope.report.page.verdicts import ClaimSentence
from tsfmscope.report.plot import Plot
from tsfmscope.report.tables import StudyTables

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "base", "family", "model", "kind", "attention_ratio", "n_cells", "n_windows", "wql_ratio", "time_ratio",
    "seconds", "on_frontier",
)  # fmt: skip
CLAIM = (
    "Yu et al. 2026 (Appendix K): given any local method, there is a compressed Chronos-Bolt model that is both faster "
    "and more accurate."
)
BOLT = "chronos-bolt"
# Kinds that are not compressed models in the sense of Yu et al. 2026; reading weights in another
# precision removes no parameters.
NOT_COMPRESSED = ("baseline", "dense", READ)


def draw(study: StudyTables, models: Sequence[str]) -> Iterator[Figure]:
    """Draw one panel per dense model; nothing without a model that has score and time."""
    frame = study.rows("frontier", COLUMNS)
    if frame[["time_ratio", "wql_ratio"]].dropna().empty:
        return
    best = frame[frame["on_frontier"] & frame["time_ratio"].notna()].sort_values(["base", "time_ratio"])
    frontiers = [f"{base}: {', '.join(part['model'])}" for base, part in best.groupby("base", sort=True)]
    windows, cells = int(frame["n_windows"].max()), int(frame["n_cells"].max())
    caption = (
        f"Geometric means over {cells} data sets and conditions, {windows:,} windows that all models forecast. "
        "Time per series is measured in the pipeline, on warm jobs of one run next to other jobs; for baselines it is "
        "the time of the fit. Baselines are the probabilistic ones of statsforecast. Numbers: share of the attention "
        f"that is left. Point values, without intervals. Models on the Pareto front (no model is both faster and more "
        f"accurate), from fast to accurate: {'; '.join(frontiers)}."
    )
    if (frame["kind"] == READ).any():
        caption += (
            " Open stars: weights of the dense model in another precision, such as bfloat16; no parameter is removed."
        )
    alt = f"Scatter plots of relative forecast error against relative time, {frame['base'].nunique()} panels, "
    alt += f"{len(frame)} points, both axes logarithmic."
    yield Figure("frontier", frontier.draw_frontier(frame), alt, caption)


def list_claims(study: StudyTables) -> list[ClaimSentence]:
    """Return the sentence on local methods."""
    return [check_local_methods(study.rows("frontier", COLUMNS))]


def check_local_methods(frame: pd.DataFrame) -> ClaimSentence:
    """Check whether, for each local baseline, a compressed Chronos-Bolt is both faster and more accurate.

    frame: COLUMNS. The check compares point values of one run, without an interval.
    """
    rows = frame[frame["family"] == BOLT]
    local = rows[rows["kind"] == "baseline"].dropna(subset=["time_ratio", "wql_ratio"])
    compressed = rows[~rows["kind"].isin(NOT_COMPRESSED)].dropna(subset=["time_ratio", "wql_ratio"])
    if rows.empty:
        return ClaimSentence(
            "not-comparable", f"{CLAIM} Here: not comparable, because no Chronos-Bolt is in this study."
        )
    lacks = [name for name, part in (("local method", local), ("compressed Chronos-Bolt", compressed)) if part.empty]
    if lacks:
        return ClaimSentence(
            "undecided", f"{CLAIM} Here: undecided, because no {' and no '.join(lacks)} has score and time."
        )
    texts, all_beaten = [], True
    for name, baseline in local.groupby("model", sort=True):
        pairs = compressed.merge(baseline, on="base", suffixes=("", "_local"))
        better = pairs[
            (pairs["time_ratio"] < pairs["time_ratio_local"]) & (pairs["wql_ratio"] < pairs["wql_ratio_local"])
        ].sort_values("wql_ratio")
        all_beaten &= len(better) > 0
        texts.append(f"{name} by {better['model'].iloc[0]}" if len(better) else f"{name} by none")
    verdict = "agrees" if all_beaten else "differs"
    return ClaimSentence(verdict, f"{CLAIM} Here, one run on this machine: {', '.join(texts)}: {verdict}.")


PLOT = Plot(
    "Forecast error against time, both relative to the dense model. Further left is faster, lower is more accurate. "
    "Local baselines are fitted to every series, on the same windows, and scored by the same code in the same run.",
    {"frontier": COLUMNS},
    draw,
    topic="compression",
    claims=list_claims,
)
