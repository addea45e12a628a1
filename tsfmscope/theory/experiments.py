"""Experiments of Yu et al. 2026, Appendix J, and of rates, as rows of points.

The rates show what a count of violations cannot.

A row has experiment, x and y. `fitted` tells whether the point is used for the slope of its `scale` (log-log:
ln y against ln x; log-linear: ln y against x). `claimed` is the slope that Yu et al. 2026 state or imply.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tsfmscope.theory.bound_check import BoundCheck
from tsfmscope.theory.compression import rank_points, width_points
from tsfmscope.theory.corollary2 import BETAS, radius, rate_points
from tsfmscope.theory.flow import DECAY as FLOW_DECAY
from tsfmscope.theory.flow import flow_points
from tsfmscope.theory.matrices import exponential_values
from tsfmscope.theory.sketching import DECAY, sketch_points
from tsfmscope.theory.theorem3 import repeated_points

Row = dict[str, Any]
# Maximum number of values of a spectrum in a figure.
MAX_POINTS = 512
LOGS, SEMI = "log-log", "log-linear"


def compression_by_rank(seed: int, *, width: int, columns: int, points: int) -> list[Row]:
    """Return the points of J.1, Fig. 15 left; the bound is `theorem3.repaired_bound` for distinct columns."""
    rows = []
    for point in rank_points(seed, width=width, columns=columns, points=points):
        setting = {"width": width, "columns": columns, "rank": point["rank"]}
        rows.append(_point("J.1 rank", point, setting, LOGS, 1.0) | _distinct(point["x"], width, point["y"]))
    return rows


def compression_by_width(seed: int, *, widths: Sequence[int], columns: int, kept: int) -> list[Row]:
    """Return the points of J.1, Fig. 15 right."""
    points = width_points(seed, widths=widths, columns=columns, rank=kept)
    return [_point("J.1 width", point, {"columns": columns, "rank": kept}, LOGS, 0.5) for point in points]


def sketch_by_heads(seed: int, *, width: int, kept: int, heads: Sequence[int], spectra: bool = False) -> list[Row]:
    """Return the points of J.2 for sparse and dense sketches: effective rank, and the distance of eq. 30.

    spectra: add the spectrum of X.
    """
    rows = _spectrum("J.2 spectrum", exponential_values(width, DECAY), 0) if spectra else []
    setting = {"width": width, "rank": kept}
    sparse_points = sketch_points(seed, width=width, rank=kept, heads=heads)
    dense_points = sketch_points(seed, width=width, rank=kept, heads=heads, dense=True)
    for name, points in (("sparse", sparse_points), ("dense", dense_points)):
        for point in points:
            count = {"heads": point["heads"]}
            fitted = name == "sparse" and point["y"] > 0
            rows.append(_point(f"J.2 {name}", point | {"fitted": fitted}, setting, LOGS, 1.0) | count)
            check = BoundCheck("printed", "lower", point["x"], point["distance"], point["least"], 1e-7 * point["least"])
            distance = {"x": point["x"], "y": point["distance"]}
            rows.append(_point(f"J.2 {name} distance", distance, setting, None, None) | count | _bound(check))
    for sparse, dense in zip(sparse_points, dense_points, strict=True):
        ratio = {"x": sparse["x"], "y": sparse["distance"] / dense["distance"], "fitted": True}
        rows.append(_point("J.2 sparse to dense", ratio, setting, LOGS, 0.0) | {"heads": sparse["heads"]})
    return rows


def flow_by_heads(seed: int, *, width: int, columns: int, heads: Sequence[int], spectra: bool = False) -> list[Row]:
    """Return the points of J.3, with spread scores and with scores that Theorem 4 bounds.

    spectra: add the spectra of X, and of the layer's output Y for spread scores.
    """
    rows = _spectrum("J.3 spectrum", exponential_values(width, FLOW_DECAY), 0) if spectra else []
    for name, scores in (("J.3 spread", "spread"), ("J.3 bounded", "bounded")):
        for point in flow_points(seed, width=width, columns=columns, heads=heads, scores=scores):  # type: ignore[arg-type]
            setting = {"width": width, "columns": columns}
            rows.append(_point(name, point | {"fitted": True}, setting, LOGS, None) | {"heads": point["heads"]})
            if spectra and scores == "spread":
                rows += _spectrum("J.3 spectrum", point["values"], point["heads"])
    return rows


def repeated_columns(seed: int, *, width: int = 16, rank: int = 8) -> list[Row]:
    """Return the points of Theorem 3, part 1, for a U that repeats one column of Ξ L times.

    The printed bound does not grow with L.
    """
    rows = []
    for point in repeated_points(seed, width=width, rank=rank):
        side = BoundCheck("printed", "upper", point["x"], point["y"], point["bound"])
        rows.append(_point("Theorem 3.1 length", point, {"width": width, "rank": rank}, LOGS, 0.0) | _bound(side))
    return rows


def decay_rates(seed: int) -> list[Row]:
    """Return the points of Corollary 2's rate: the printed decay of -ln ρ per step is the slowest allowed."""
    return [
        _point(f"Corollary 2 rate, beta {beta:g}", point, {"beta": beta, "width": 64}, SEMI, -math.log(radius(beta)))
        for beta in BETAS
        for point in rate_points(seed, beta)
    ]


EXPERIMENTS: Mapping[str, Callable[..., list[Row]]] = {
    "rank": compression_by_rank,
    "width": compression_by_width,
    "sketch": sketch_by_heads,
    "flow": flow_by_heads,
    "repeated": repeated_columns,
    "rates": decay_rates,
}


def _point(
    name: str, point: Mapping[str, Any], setting: Mapping[str, Any], scale: str | None, slope: float | None
) -> Row:
    fitted = bool(point.get("fitted", False))
    return {
        "experiment": name, "x": float(point["x"]), "y": float(point["y"]), "fitted": fitted, "scale": scale,
        "claimed": slope, "setting": dict(setting),
    }  # fmt: skip


def _bound(side: BoundCheck) -> Row:
    return {"form": side.form, "side": side.side, "bound": side.bound, "floor": side.floor, "holds": side.holds}


def _distinct(tail: float, width: int, y: float) -> Row:
    return _bound(BoundCheck("repaired", "upper", tail, y, 3 * math.e * math.sqrt(width) * tail, 1e-12))


def _spectrum(name: str, values: np.ndarray, heads: int) -> list[Row]:
    """Return σ_j against j, thinned to at most MAX_POINTS points. heads: 0 for the input itself."""
    step = -(-len(values) // MAX_POINTS)
    spectrum = [{"x": at + 1, "y": values[at]} for at in range(0, len(values), step)]
    return [_point(name, point, {"width": len(values)}, None, None) | {"heads": heads} for point in spectrum]
