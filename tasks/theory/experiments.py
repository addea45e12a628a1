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

from tsfmscope.tasks.theory.bound_check import BoundCheck
from tsfmscope.tasks.theory.compression import rank_points, width_points
from tsfmscope.tasks.theory.corollary2 import BETAS, radius, rate_points
from tsfmscope.tasks.theory.flow import DECAY as FLOW_DECAY
from tsfmscope.tasks.theory.flow import flow_points
from tsfmscope.tasks.theory.matrices import decaying
from tsfmscope.tasks.theory.sketching import DECAY, sketch_points
from tsfmscope.tasks.theory.theorem3 import repeated_points

Row = dict[str, Any]
# Maximum number of values of a spectrum in a figure.
DRAWN = 512
LOGS, SEMI = "log-log", "log-linear"


def compression_by_rank(seed: int, *, width: int, columns: int, points: int) -> list[Row]:
    """Return the points of J.1, Fig. 15 left; the bound is `theorem3.repaired_bound` for distinct columns."""
    rows = []
    for one in rank_points(seed, width=width, columns=columns, points=points):
        about = {"width": width, "columns": columns, "rank": one["rank"]}
        rows.append(_point("J.1 rank", one, about, LOGS, 1.0) | _distinct(one["x"], width, one["y"]))
    return rows


def compression_by_width(seed: int, *, widths: Sequence[int], columns: int, kept: int) -> list[Row]:
    """Return the points of J.1, Fig. 15 right."""
    found = width_points(seed, widths=widths, columns=columns, kept=kept)
    return [_point("J.1 width", one, {"columns": columns, "rank": kept}, LOGS, 0.5) for one in found]


def sketching(seed: int, *, width: int, kept: int, heads: Sequence[int], spectra: bool = False) -> list[Row]:
    """Return the points of J.2 for sparse and dense sketches: effective rank, and the distance of eq. 30.

    spectra: add the spectrum of X.
    """
    rows = _spectrum("J.2 spectrum", decaying(width, DECAY), 0) if spectra else []
    about, sizes = {"width": width, "rank": kept}, {"width": width, "kept": kept, "heads": heads}
    both = {name: sketch_points(seed, **sizes, dense=name == "dense") for name in ("sparse", "dense")}  # type: ignore[arg-type]
    for name, found in both.items():
        for one in found:
            fitted = name == "sparse" and one["y"] > 0
            rows.append(_point(f"J.2 {name}", one | {"fitted": fitted}, about, LOGS, 1.0) | {"heads": one["heads"]})
            side = BoundCheck("printed", "lower", one["x"], one["distance"], one["least"], 1e-7 * one["least"])
            away = _point(f"J.2 {name} distance", {"x": one["x"], "y": one["distance"]}, about, None, None)
            rows.append(away | {"heads": one["heads"]} | _bound(side))
    for sparse, dense in zip(*both.values(), strict=True):
        ratio = {"x": sparse["x"], "y": sparse["distance"] / dense["distance"], "fitted": True}
        rows.append(_point("J.2 sparse to dense", ratio, about, LOGS, 0.0) | {"heads": sparse["heads"]})
    return rows


def flow(seed: int, *, width: int, columns: int, heads: Sequence[int], spectra: bool = False) -> list[Row]:
    """Return the points of J.3, with spread scores and with scores that Theorem 4 bounds.

    spectra: add the spectra of X, and of the layer's output Y for spread scores.
    """
    rows = _spectrum("J.3 spectrum", decaying(width, FLOW_DECAY), 0) if spectra else []
    for name, scores in (("J.3 spread", "spread"), ("J.3 bounded", "bounded")):
        for one in flow_points(seed, width=width, columns=columns, heads=heads, scores=scores):  # type: ignore[arg-type]
            about = {"width": width, "columns": columns}
            rows.append(_point(name, one | {"fitted": True}, about, LOGS, None) | {"heads": one["heads"]})
            if spectra and scores == "spread":
                rows += _spectrum("J.3 spectrum", one["values"], one["heads"])
    return rows


def repeated(seed: int, *, width: int = 16, rank: int = 8) -> list[Row]:
    """Return the points of Theorem 3, part 1, for a U that repeats one column of Ξ L times.

    The printed bound does not grow with L.
    """
    rows = []
    for one in repeated_points(seed, width=width, rank=rank):
        side = BoundCheck("printed", "upper", one["x"], one["y"], one["bound"])
        rows.append(_point("Theorem 3.1 length", one, {"width": width, "rank": rank}, LOGS, 0.0) | _bound(side))
    return rows


def decay_rates(seed: int) -> list[Row]:
    """Return the points of Corollary 2's rate: the printed decay of -ln ρ per step is the slowest allowed."""
    return [
        _point(f"Corollary 2 rate, beta {beta:g}", one, {"beta": beta, "width": 64}, SEMI, -math.log(radius(beta)))
        for beta in BETAS
        for one in rate_points(seed, beta)
    ]


EXPERIMENTS: Mapping[str, Callable[..., list[Row]]] = {
    "rank": compression_by_rank,
    "width": compression_by_width,
    "sketch": sketching,
    "flow": flow,
    "repeated": repeated,
    "rates": decay_rates,
}


def _point(
    name: str, one: Mapping[str, Any], about: Mapping[str, Any], scale: str | None, claimed: float | None
) -> Row:
    fitted = bool(one.get("fitted", False))
    return {
        "experiment": name, "x": float(one["x"]), "y": float(one["y"]), "fitted": fitted, "scale": scale,
        "claimed": claimed, "setting": dict(about),
    }  # fmt: skip


def _bound(side: BoundCheck) -> Row:
    return {"form": side.form, "side": side.side, "bound": side.bound, "floor": side.floor, "holds": side.holds}


def _distinct(tail: float, width: int, y: float) -> Row:
    return _bound(BoundCheck("repaired", "upper", tail, y, 3 * math.e * math.sqrt(width) * tail, 1e-12))


def _spectrum(name: str, values: np.ndarray, heads: int) -> list[Row]:
    """Return σ_j against j, thinned to at most DRAWN points. heads: 0 stands for the input itself."""
    step = -(-len(values) // DRAWN)
    drawn = [{"x": at + 1, "y": values[at]} for at in range(0, len(values), step)]
    return [_point(name, one, {"width": len(values)}, None, None) | {"heads": heads} for one in drawn]
