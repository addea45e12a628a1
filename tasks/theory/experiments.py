"""Appendix J's experiments, and the rates that a count of violations cannot show, as rows of points.

A row has experiment, x and y; `fitted` says that it takes part in the slope of its `scale` (log-log: ln y against ln x;
log-linear: ln y against x), and `claimed` is the slope that the paper says or implies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tasks.theory.compression import rank_points, width_points
from tasks.theory.corollary2 import BETAS, radius, rate_points
from tasks.theory.flow import DECAY as FLOW_DECAY
from tasks.theory.flow import flow_points
from tasks.theory.matrices import decaying
from tasks.theory.sides import Side
from tasks.theory.sketching import DECAY, sketch_points
from tasks.theory.theorem3 import repeated_points

Row = dict[str, Any]
DRAWN = 512  # values of a spectrum that a picture shows, at most
LOGS, SEMI = "log-log", "log-linear"


def compression_by_rank(seed: int, *, width: int, columns: int, points: int) -> list[Row]:
    """J.1, left of Fig. 15; the bound is that of `theorem3.repaired_bound` for distinct columns."""
    rows = []
    for one in rank_points(seed, width=width, columns=columns, points=points):
        about = {"width": width, "columns": columns, "rank": one["rank"]}
        rows.append(_point("J.1 rank", one, about, LOGS, 1.0) | _distinct(one["x"], width, one["y"]))
    return rows


def compression_by_width(seed: int, *, widths: Sequence[int], columns: int, kept: int) -> list[Row]:
    """J.1, right of Fig. 15."""
    found = width_points(seed, widths=widths, columns=columns, kept=kept)
    return [_point("J.1 width", one, {"columns": columns, "rank": kept}, LOGS, 0.5) for one in found]


def sketching(seed: int, *, width: int, kept: int, heads: Sequence[int], spectra: bool = False) -> list[Row]:
    """J.2, sparse sketches and dense ones: effective rank, and eq. 30's distance. spectra: that of X too."""
    rows = _spectrum("J.2 spectrum", decaying(width, DECAY), 0) if spectra else []
    about, sizes = {"width": width, "rank": kept}, {"width": width, "kept": kept, "heads": heads}
    both = {name: sketch_points(seed, **sizes, dense=name == "dense") for name in ("sparse", "dense")}  # type: ignore[arg-type]
    for name, found in both.items():
        for one in found:
            fitted = name == "sparse" and one["y"] > 0
            rows.append(_point(f"J.2 {name}", one | {"fitted": fitted}, about, LOGS, 1.0) | {"heads": one["heads"]})
            side = Side("printed", "lower", one["x"], one["distance"], one["least"], 1e-7 * one["least"])
            away = _point(f"J.2 {name} distance", {"x": one["x"], "y": one["distance"]}, about, None, None)
            rows.append(away | {"heads": one["heads"]} | _bound(side))
    for sparse, dense in zip(*both.values(), strict=True):
        ratio = {"x": sparse["x"], "y": sparse["distance"] / dense["distance"], "fitted": True}
        rows.append(_point("J.2 sparse to dense", ratio, about, LOGS, 0.0) | {"heads": sparse["heads"]})
    return rows


def flow(seed: int, *, width: int, columns: int, heads: Sequence[int], spectra: bool = False) -> list[Row]:
    """J.3, with scores that spread and with scores that Theorem 4 bounds. spectra: of X and of the former's Y."""
    rows = _spectrum("J.3 spectrum", decaying(width, FLOW_DECAY), 0) if spectra else []
    for name, scores in (("J.3 spread", "spread"), ("J.3 bounded", "bounded")):
        for one in flow_points(seed, width=width, columns=columns, heads=heads, scores=scores):  # type: ignore[arg-type]
            about = {"width": width, "columns": columns}
            rows.append(_point(name, one | {"fitted": True}, about, LOGS, None) | {"heads": one["heads"]})
            if spectra and scores == "spread":
                rows += _spectrum("J.3 spectrum", one["values"], one["heads"])
    return rows


def repeated(seed: int, *, width: int = 16, rank: int = 8) -> list[Row]:
    """Theorem 3, part 1, where U is one column of Ξ, L times: the printed bound does not grow with L."""
    rows = []
    for one in repeated_points(seed, width=width, rank=rank):
        side = Side("printed", "upper", one["x"], one["y"], one["bound"])
        rows.append(_point("Theorem 3.1 length", one, {"width": width, "rank": rank}, LOGS, 0.0) | _bound(side))
    return rows


def decay_rates(seed: int) -> list[Row]:
    """Corollary 2's rate: the printed decay, -ln ρ a step, is the slowest that is allowed."""
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


def _bound(side: Side) -> Row:
    return {"form": side.form, "side": side.side, "bound": side.bound, "floor": side.floor, "holds": side.holds}


def _distinct(tail: float, width: int, y: float) -> Row:
    return _bound(Side("repaired", "upper", tail, y, 3 * math.e * math.sqrt(width) * tail, 1e-12))


def _spectrum(name: str, values: np.ndarray, heads: int) -> list[Row]:
    """σ_j against j; every few where there are more than a picture shows. heads: 0 stands for the input itself."""
    step = -(-len(values) // DRAWN)
    drawn = [{"x": at + 1, "y": values[at]} for at in range(0, len(values), step)]
    return [_point(name, one, {"width": len(values)}, None, None) | {"heads": heads} for one in drawn]
