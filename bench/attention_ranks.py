"""Do ranks, and a bound of Yu et al. 2026, say which attention of a trained model can be cut?

    python -m bench.attention_ranks [--quick] [--models MODEL ...] [--rows FILE.csv]
    python -m bench.attention_ranks --read FILE.csv ... [--correlations FILE.csv] [--figure FILE]

Each self-attention layer is cut alone, and the change of the forecast is measured on synthetic windows. Queries, keys
and values keep a quarter of their ranks: by the projection of Theorems 3 and 5, on the leading directions of the
layer's inputs; by as many random directions; and by the least change of the outputs of each matrix. Next to it stand
the numerical ranks of the inputs, and the repaired bound of the theorems with the layer's own norms, for layers in
which nothing, such as a rotation, lies between the projections and their product.

Columns of a row. Of the inputs: rank_0.1, rank_0.01 (numerical ranks), dimension (that holds 80 % of the variance), all
as shares of the width; tail, the first singular value that the projection drops over the largest. Changes of the
forecast: projected, random, least_change; over_random, projected over random. Of the heads' outputs, by the projection:
output_change, its bound, and is_vacuous, 1 if any weights of the softmax would satisfy the bound.

MODEL: a bundled name or a folder; default: all bundled models with attention. Last line JSON: by predictor and change,
the mean over families of the rank correlation inside a model.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from tsfmscope.compression import bits
from tsfmscope.compression.calibration import attention_layers, equal_windows, gather
from tsfmscope.errors import ModelError
from tsfmscope.functions.load import load, make_case
from tsfmscope.functions.smallest import TIMED, search_series, synthetic_calibration
from tsfmscope.geometry.spectrum import effective_dimension
from tsfmscope.models.common.attention import AttentionLayer
from tsfmscope.ranks.spectrum import numerical_rank
from tsfmscope.statistics.means import mean
from tsfmscope.statistics.ranks import critical_rho, spearman

CHECKPOINTS = Path(__file__).parents[1] / "tsfmscope" / "checkpoints"
# Share of the ranks that is kept, windows whose forecast is compared, and draws of random directions.
SHARE, WINDOWS, DRAWS = 0.25, 64, 3
TOLERANCES = (0.1, 0.01)
QUICK = ("chronos-bolt-mini", "patchtst-mini")
CHANGES = ("projected", "random", "least_change", "over_random", "output_change")
PREDICTORS = ("rank_0.1", "rank_0.01", "dimension", "tail", "bound", "depth")


def measure(name: str) -> Iterator[dict[str, Any]]:
    """Yield a row for each self-attention layer of a model that can change a forecast."""
    model = load(name)
    case = make_case(
        model, next(item for item in search_series(None, 0) if item.name == TIMED), context=None, horizon=None, seed=0
    )
    family = model.family
    family.network.eval()
    windows = equal_windows(family, {}, synthetic_calibration(case))
    conditioned, _ = family.with_condition(case.context, 0)
    moments = gather(family, *[conditioned.tokenize(part) for part in windows])
    run = bits._runner(family, bits._spread(windows, WINDOWS))
    expected = run()
    rng = np.random.default_rng(0)
    for layer in attention_layers(family):
        if layer.kind in ("cross", "group") or layer.stack not in family.stacks:
            continue
        root = moments[layer.name].inputs[:, 1:]
        _, values, directions = np.linalg.svd(root, full_matrices=False)
        width = len(values)
        kept = max(1, int(SHARE * width))
        leading = directions[:kept].T

        def distance(layer: AttentionLayer, cut: Callable[[np.ndarray], np.ndarray]) -> float:
            with replaced(layer, cut):
                return math.sqrt(bits._distance(family, run(), expected))

        row: dict[str, Any] = {
            "model": Path(name).name,
            "family": family.name,
            "layer": layer.name,
            "depth": layer.layer,
            "width": width,
        }
        for epsilon in TOLERANCES:
            row[f"rank_{epsilon}"] = numerical_rank(values, epsilon) / width
        row["dimension"] = effective_dimension(values**2) / width
        row["tail"] = float(values[kept] / values[0]) if values[0] else 0.0
        row["projected"] = distance(layer, partial(project, leading))
        drawn = [np.linalg.qr(rng.normal(size=(width, kept)))[0] for _ in range(DRAWS)]
        row["random"] = float(np.mean([distance(layer, partial(project, basis)) for basis in drawn]))
        row["over_random"] = row["projected"] / row["random"] if row["random"] else 1.0
        row["least_change"] = distance(layer, partial(least_change, root))
        yield row | attention_change(layer, leading, run)


def project(
    basis: Float[np.ndarray, "column rank"], weight: Float[np.ndarray, "row column"]
) -> Float[np.ndarray, "row column"]:
    """Return the weight of the inputs' projections on these orthonormal columns."""
    projected: np.ndarray = weight @ basis @ basis.T
    return projected


def least_change(
    root: Float[np.ndarray, "n column"], weight: Float[np.ndarray, "row column"]
) -> Float[np.ndarray, "row column"]:
    """Return the weight of SHARE of its rank whose outputs change least; root: an R factor of its inputs."""
    left = np.linalg.svd(weight @ root.T, full_matrices=False)[0][:, : max(1, int(SHARE * min(weight.shape)))]
    truncated: np.ndarray = left @ (left.T @ weight)
    return truncated


@contextmanager
def replaced(layer: AttentionLayer, cut: Callable[[np.ndarray], np.ndarray]) -> Iterator[None]:
    """Let queries, keys and values of a layer have other weights."""
    weights = [layer.linear(part).weight for part in ("q", "k", "v")]
    own = [weight.detach().clone() for weight in weights]
    try:
        with torch.no_grad():
            for weight in weights:
                weight.copy_(torch.from_numpy(cut(weight.double().numpy())))
        yield
    finally:
        with torch.no_grad():
            for weight, kept in zip(weights, own, strict=True):
                weight.copy_(kept)


def attention_change(
    layer: AttentionLayer, leading: Float[np.ndarray, "width rank"], run: Callable[[], object]
) -> dict[str, float | None]:
    """Return the change of the heads' outputs by the projection, and its bound, over the norm of these outputs.

    bound: of the proof of Theorem 3.1 as repaired, with norms in place of its hypotheses. A column u of the inputs
    (with a 1 where the projections have biases) has at most the norm C, and loses at most τ. The output of a head then
    changes by at most ‖W_V‖ (τ + C min{2, s}), with s = ‖W_Qᵀ W_K‖ (2 C τ + τ²) times the scale of the scores; 2 is the
    most that weights of a softmax can change. is_vacuous: 1 if that most is reached in every head, so that the bound
    is no smaller than 2 C ‖W_V‖, which holds for any weights of the softmax. None for layers that are not `plain`.
    """
    inputs, outputs = record(layer, run)
    with replaced(layer, partial(project, leading)):
        _, changed = record(layer, run)
    size = np.linalg.norm(outputs)
    found: dict[str, float | None] = {
        "output_change": float(np.linalg.norm(changed - outputs) / size), "bound": None, "is_vacuous": None,
    }  # fmt: skip
    if not layer.plain:
        return found
    own = layer.read()
    biased = any(bias is not None for bias in (own.q_bias, own.k_bias, own.v_bias))
    lost = float(np.linalg.norm(inputs - inputs @ leading @ leading.T, axis=1).max())
    longest = float(np.sqrt(np.square(inputs).sum(axis=1).max() + biased))
    repeat = len(own.q) // len(own.v)
    query = with_bias(own.q, own.q_bias)
    key, value = (np.repeat(with_bias(*pair), repeat, axis=0) for pair in ((own.k, own.k_bias), (own.v, own.v_bias)))
    norms = np.linalg.norm(np.swapaxes(query, 1, 2) @ key, 2, axis=(1, 2))
    shift = layer.scale * norms * (2 * longest * lost + lost**2)
    of_heads = np.linalg.norm(value, 2, axis=(1, 2)) * (lost + longest * np.minimum(2, shift))
    bound = math.sqrt(len(inputs) * float(np.square(of_heads).sum()))
    return found | {"bound": bound / float(size), "is_vacuous": float((shift >= 2).all())}


def with_bias(
    weight: Float[np.ndarray, "head row width"], bias: Float[np.ndarray, "head row"] | None
) -> Float[np.ndarray, "head row width_and_one"]:
    """Return the weight of [1, u]."""
    column = np.zeros(weight.shape[:2]) if bias is None else bias
    return np.concatenate([column[:, :, None], weight], axis=2)


def record(layer: AttentionLayer, run: Callable[[], object]) -> tuple[np.ndarray, np.ndarray]:
    """Return the inputs of the queries and the outputs of the heads in one run, each as rows."""
    rows: dict[str, list[np.ndarray]] = {"q": [], "o": []}

    def hook(part: str) -> Callable[..., None]:
        return lambda module, arguments: rows[part].append(
            arguments[0].detach().double().reshape(-1, arguments[0].shape[-1]).numpy()
        )

    handles = [layer.linear(part).register_forward_pre_hook(hook(part)) for part in rows]
    try:
        run()
    finally:
        for handle in handles:
            handle.remove()
    inputs, outputs = (np.concatenate(rows[part]) for part in ("q", "o"))
    return inputs, outputs


def inside(rows: Sequence[Mapping[str, str]], predictor: str, change: str) -> dict[str, float]:
    """Return the rank correlation of a predictor with a change by family: the mean over models with three layers."""
    found: dict[str, float] = {}
    for family, models in pairs_of(rows, predictor, change).items():
        own = [spearman(*np.array(pairs).T) for pairs in models.values() if len(pairs) >= 3]
        if own := [rho for rho in own if np.isfinite(rho)]:
            found[family] = float(np.mean(own))
    return found


def between(rows: Sequence[Mapping[str, str]], predictor: str, change: str) -> tuple[float, int]:
    """Return the rank correlation over the means of families, and their number."""
    means = [
        np.mean([pair for pairs in models.values() for pair in pairs], axis=0)
        for models in pairs_of(rows, predictor, change).values()
    ]
    return (spearman(*np.array(means).T) if len(means) > 2 else math.nan), len(means)


def pairs_of(
    rows: Sequence[Mapping[str, str]], predictor: str, change: str
) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """Return family -> model -> predictor and change of each layer that has both."""
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for row in rows:
        if row[predictor]:
            pair = (float(row[predictor]), float(row[change]))
            found.setdefault(row["family"], {}).setdefault(row["model"], []).append(pair)
    return found


def correlate(rows: Sequence[Mapping[str, str]]) -> Iterator[dict[str, str | int]]:
    """Yield a row for each predictor and change: mean over families with Student's t, and over families' means.

    `rank_0.1 less depth`: the difference of both predictors by family. `rank_0.1 of bounded`: of the layers that have a
    bound alone, for comparison with it.
    """
    bounded = [row for row in rows if row["bound"]]
    for change in CHANGES:
        of_depth = inside(rows, "depth", change)
        for predictor in PREDICTORS:
            own = inside(rows, predictor, change)
            rho, n = between(rows, predictor, change)
            yield {"predictor": predictor, "change": change, **estimate_row(own.values()),
                   "between": f"{rho:.6g}", "n_between": n, "critical": f"{critical_rho(n):.6g}"}  # fmt: skip
            if predictor == PREDICTORS[0]:
                yield {"predictor": f"{predictor} of bounded", "change": change,
                       **estimate_row(inside(bounded, predictor, change).values()),
                       "between": "", "n_between": "", "critical": ""}  # fmt: skip
                less = [rho - of_depth[family] for family, rho in own.items() if family in of_depth]
                yield {"predictor": f"{predictor} less depth", "change": change, **estimate_row(less),
                       "between": "", "n_between": "", "critical": ""}  # fmt: skip


def estimate_row(values: Iterable[float]) -> dict[str, str | int]:
    """Return the mean with its interval, p and detectable effect, and the number of values."""
    values = list(values)
    estimate, low, high, p, detectable, _ = mean(np.array(values))
    numbers = {"inside": estimate, "low": low, "high": high, "p": p, "detectable": detectable}
    return {"families": len(values), **{name: f"{number:.6g}" for name, number in numbers.items()}}


def draw_figure(rows: Sequence[Mapping[str, str]]) -> Any:
    """Draw the change of the forecast against the rank of the inputs: one panel per model, one point per layer."""
    import altair as alt
    import pandas as pd

    from tsfmscope.report import style

    table = pd.DataFrame([
        {
            "model": row["model"].removesuffix("-mini"), "order": order, "rank": 100 * float(row["rank_0.1"]),
            "change": max(float(row["projected"]), 1e-4),
        }
        for order, row in enumerate(rows)
    ])  # fmt: skip
    base = alt.Chart().encode(
        x=alt.X("rank:Q", title=None, axis=alt.Axis(values=[0, 50, 100], format="d"), scale=alt.Scale(domain=[0, 100])),
        y=alt.Y("change:Q", title=None, axis=alt.Axis(values=[1e-4, 1e-3, 1e-2, 0.1, 1], format="~g"),
                scale=alt.Scale(type="log", domain=[1e-4, 1])),
        order="order:Q",
    )  # fmt: skip
    line = base.mark_line(color=style.COLOURS[0], strokeWidth=1, opacity=0.5)
    points = base.mark_point(color=style.COLOURS[0], filled=True, size=28, opacity=1)
    panels = alt.layer(line, points, data=table).properties(width=120, height=90)
    title = alt.TitleParams(
        "change of the forecast when a layer is cut (up), rank(0.1) of its inputs in percent of the width (right)",
        fontSize=11, fontWeight="normal", anchor="start",
    )  # fmt: skip
    facet = alt.Facet("model:N", title=None, header=alt.Header(labelFontSize=11))
    return panels.facet(facet, columns=4, spacing=14).properties(title=title)


def write(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as CSV."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main() -> None:
    """Print a line for each layer, the correlations, and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{' and '.join(QUICK)} alone")
    parser.add_argument("--models", nargs="+", default=[])
    parser.add_argument("--rows", type=Path, metavar="FILE.csv", help="write a row for each layer")
    parser.add_argument("--read", nargs="+", type=Path, default=[], metavar="FILE.csv", help="measure nothing")
    parser.add_argument("--correlations", type=Path, metavar="FILE.csv")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="PNG, SVG or PDF")
    arguments = parser.parse_args()
    names = arguments.models or (QUICK if arguments.quick else sorted(path.name for path in CHECKPOINTS.glob("*-mini")))
    rows: list[dict[str, str]] = []
    for path in arguments.read:
        with path.open(newline="") as file:
            rows += csv.DictReader(file)
    for name in names if not arguments.read else ():
        try:
            for row in measure(name):
                rows.append({key: "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
                             for key, value in row.items()})  # fmt: skip
                print("  ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
        except ModelError as error:
            print(f"{name}: left out ({error})", flush=True)
    if arguments.rows:
        write(arguments.rows, rows)
    found = list(correlate(rows))
    if arguments.correlations:
        write(arguments.correlations, found)
    if arguments.figure:
        from tsfmscope.report.render import image_writers

        image_writers(lambda: draw_figure(rows))[arguments.figure.suffix](arguments.figure)
    for one in found:
        print(
            f"{one['predictor']:22s} {one['change']:14s} inside {one['inside']} [{one['low']}, {one['high']}], "
            f"{one['families']} families; between {one['between']}"
        )
    print(json.dumps({f"{one['predictor']}, {one['change']}": one["inside"] for one in found}))


if __name__ == "__main__":
    main()
