"""Truncation of a trained model: ranks for parts of its attention layers, and weights of these ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tsfmscope.compression import budget
from tsfmscope.compression import candidates as builders
from tsfmscope.compression.calibration import attention_layers, gather
from tsfmscope.compression.candidates import Candidate, apply_products, count_parameters, inert_matrices, separate_idle
from tsfmscope.compression.options import METHODS, Method
from tsfmscope.compression.schedules import attention_widths
from tsfmscope.errors import ModelError
from tsfmscope.models.common.attention import AttentionLayer
from tsfmscope.models.common.layers import compression_entries, factors, put_product
from tsfmscope.ranks.spectrum import numerical_rank

if TYPE_CHECKING:
    from tsfmscope.compression.calibration import Moments
    from tsfmscope.models.base import Family
    from tsfmscope.models.types import Tokens
    from tsfmscope.series.types import Windows

# Parts whose ranks are widths of a head.
PRODUCTS = ("qk", "vo")
SCHEDULES = ("flow", "flat")


def calibrate_and_compress(
    model: Family, method: Method, parts: Sequence[Tokens], timed: Windows | None = None
) -> list[dict[str, Any]]:
    """Truncate a model in place as `compress` does, from calibration windows.

    parts: as `gather` takes them, for a method that reads data. timed: windows whose forecast is timed, for `time`.
    """
    moments = gather(model, *parts) if METHODS[method.method].reads_data else None
    return compress(model, method, moments, budget.measure(model, budget.forecast_seconds(timed)) if timed else None)


def compress(
    model: Family,
    method: Method,
    moments: Mapping[str, Moments] | None = None,
    saved_seconds: budget.SavedSeconds | None = None,
) -> list[dict[str, Any]]:
    """Truncate the attention of a model in place; return one row per layer and part, with its rank.

    moments: by layer, for a method that reads data.

    Methods:
    - "svd": truncates each matrix on its own, to two thin factors if they have fewer numbers; else it stays
      dense.
    - "joint": makes narrower heads, with the least error of the products W_Qᵀ W_K and W_O W_V.
    - "activation-aware-svd", "activation-aware": "svd" and "joint" with the least error on calibration data.
    - "project": projects W_Q, W_K and W_V on the leading directions of their inputs.

    Rules:
    - {"epsilon": ε}: number of singular values above ε times the largest; the maximum over heads that share a
      width.
    - {"share": s}: int(s * full), at least 1.
    - {"budget": b}: at most b times the model's attention parameters, with the least sum of squared relative
      errors. "activation-aware" takes errors relative to the layer's output (`products.output_shares`); "svd" takes the
      smallest ε for all matrices (`allocate_by_tolerance`). Matrices without effect (`candidates.inert_matrices`)
      get rank 1.
    - {"time": t}: the same error, within t times the seconds of a forecast. `saved_seconds` contains the seconds that
      narrower heads save. All parts of a layer get one width.
    - {"flat": r}, {"flow": {...}}: dimensions of a head, from tsfmscope/compression/schedules.py; for whole
      matrices, times the number of heads.

    All heads of a layer have one rank. Rows: stack, layer, attention, part, full_width, rank, relative_error
    (in the method's own norm, root mean square over heads). The block `compression` of the config records the
    method and the shapes of the weights.
    ModelError if a family does not describe its attention layers, or if they contain factors already.
    ValueError for an invalid method or rule.
    """
    return truncate(model, method, model_candidates(model, method, moments), saved_seconds)


def model_candidates(model: Family, method: Method, moments: Mapping[str, Moments] | None) -> list[Candidate]:
    """Return the candidates of a model's attention layers, which do not depend on the ranks; raises as `compress`.

    Those of matrices without effect have shares of 0, so that a budget leaves them at rank 1.
    """
    layers = attention_layers(model)
    refuse_factors(layers, model.name)
    idle = inert_matrices(model, univariate=method.univariate)
    truncations = {name: entry for name, entry in METHODS.items() if entry.candidates}
    name = method.method
    if name not in truncations:
        raise ValueError(f"method: got {name!r}, expected one of {sorted(truncations)}")
    by_layer = (moments or {}) if truncations[name].reads_data else {}
    missing = [layer.name for layer in layers if layer.name not in by_layer]
    if missing and truncations[name].reads_data:
        raise ValueError(f"method {name}: no inputs of {missing[:3]}; gather them over calibration windows")
    build = getattr(builders, str(truncations[name].candidates))
    candidates: list[Candidate] = []
    for layer in layers:
        projections = layer.read()
        if not all(np.isfinite(array).all() for array in projections if array is not None):
            raise ModelError(f"{layer.name}: weights contain NaN or infinity; check the checkpoint and its dtype")
        for candidate in build(layer, projections, by_layer.get(layer.name)):
            candidates += separate_idle(candidate, idle)
    return candidates


def truncate(
    model: Family, method: Method, candidates: Sequence[Candidate], saved_seconds: budget.SavedSeconds | None = None
) -> list[dict[str, Any]]:
    """Truncate a model in place as `compress` does, with candidates that were computed before.

    candidates: result of `model_candidates` for this model, or for another model with the same weights.
    """
    layers = list(model.attentions())
    refuse_factors(layers, model.name)
    assert {candidate.layer.name for candidate in candidates} <= {layer.name for layer in layers}, "of another model"
    ranks = _ranks(method, candidates, layers, saved_seconds)
    ranked = list(zip(candidates, ranks, strict=True))
    for layer in layers:
        apply_ranks(layer, [(candidate, rank) for candidate, rank in ranked if candidate.layer.name == layer.name])
    model.compression = {**method.to_dict(), **compression_entries(layers)}
    rows = []
    for candidate, rank in ranked:
        layer = candidate.layer
        place = {"stack": layer.stack, "layer": layer.layer, "attention": layer.kind}
        for index, part in enumerate(candidate.parts):
            ranks_of_part = {"part": part, "full_width": candidate.full, "rank": rank}
            rows.append({**place, **ranks_of_part, "relative_error": candidate.error(rank, index)})
    return rows


def refuse_factors(layers: Iterable[AttentionLayer], model: str) -> None:
    """Raise ModelError, with the name `model`, if matrices are thin factors already.

    The ranks and costs of this module assume dense matrices.
    """
    if factorised := factors(layers):
        name, ranks = next(iter(factorised.items()))
        raise ModelError(
            f"{model}: {', '.join(ranks)} of {name} are thin factors, expected dense matrices; compress the original "
            "model, not a compressed one"
        )


def _ranks(
    method: Method,
    candidates: Sequence[Candidate],
    layers: Sequence[AttentionLayer],
    saved_seconds: budget.SavedSeconds | None,
) -> list[int]:
    """Return one rank per candidate."""
    name, value = method.ranks.rule
    if name == "budget":
        if METHODS[method.method].one_tolerance:
            spectra = [candidate.spectrum() for candidate in candidates]
            return ranks_by_budget(value, candidates, layers, partial(budget.allocate_by_tolerance, spectra))
        curves = [candidate.curve() for candidate in candidates]
        return ranks_by_budget(value, candidates, layers, partial(budget.allocate, curves))
    if name == "time":
        if saved_seconds is None:
            raise ValueError("ranks time: got no saved seconds, expected the result of budget.measure")
        return allocate_within(value, candidates, saved_seconds)
    if name in SCHEDULES:
        heads, ranks = attention_widths(value, layers), []
        for candidate in candidates:
            # Whole matrices get the width times the number of heads. Ranks of a flow are clipped to the full rank.
            rank = heads[candidate.layer.name] * (1 if candidate.parts[0] in PRODUCTS else candidate.layer.heads)
            if name == "flat" and not 1 <= rank <= candidate.full:
                raise ValueError(
                    f"ranks flat: got {rank} for {candidate.layer.name} {candidate.parts}, "
                    f"expected 1 to {candidate.full}"
                )
            ranks.append(min(rank, candidate.full))
        return ranks
    if name == "share":
        return [max(1, int(round(value * candidate.full, 9))) for candidate in candidates]
    ranks = []
    for candidate in candidates:
        # The maximum of each value and all later ones, since a projection's values need not decrease.
        envelopes = (np.maximum.accumulate(factor.values[::-1])[::-1] for factor in candidate.factors)
        ranks.append(max(1, *(numerical_rank(envelope, value) for envelope in envelopes)))
    return ranks


def ranks_by_budget(
    share: float,
    candidates: Sequence[Candidate],
    layers: Sequence[AttentionLayer],
    allocate: Callable[[int], list[int]],
) -> list[int]:
    """Return ranks that keep at most this share of all attention parameters.

    allocate: returns one rank per candidate within a number of parameters, or raises BudgetError.
    """
    total = count_parameters(layers)
    # Biases, and matrices that the method does not change.
    fixed = total - sum(candidate.before for candidate in candidates)
    remaining = int(share * total) - fixed
    try:
        return allocate(remaining)
    except budget.BudgetError as error:
        least = (fixed + sum(int(candidate.costs[0]) for candidate in candidates)) / total
        message = f"ranks budget: got {share}, expected at least {least:.4f}, which rank 1 costs"
        raise budget.BudgetError(message) from error


def allocate_within(share: float, candidates: Sequence[Candidate], saved_seconds: budget.SavedSeconds) -> list[int]:
    """Return one rank per candidate and one width per layer: least summed error within a share of the seconds.

    The rule is that of `budget.allocate`, with measured seconds as costs. candidates: of products of
    heads, since those of whole matrices make no head narrower. ValueError for a share that even heads of one dimension
    exceed.
    """
    by_layer: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        by_layer.setdefault(candidate.layer.name, []).append(candidate)
    # By width: the nanoseconds added to heads of one dimension, and the summed errors.
    curves = []
    for name, parts in by_layer.items():
        saved = saved_seconds.by_layer[name]
        widths = np.arange(len(saved))
        errors = np.sum([part.curve().errors[np.minimum(widths, part.full - 1)] for part in parts], axis=0)
        curves.append(budget.Curve(np.floor((saved[0] - saved) * budget.TICK).astype(np.int64), errors))
    least = saved_seconds.total - sum(float(saved_seconds.by_layer[name][0]) for name in by_layer)
    if share * saved_seconds.total < least:
        raise ValueError(
            f"ranks time: got {share} of {saved_seconds.total:.3g} s, expected at least "
            f"{least / saved_seconds.total:.4f}, the share of heads of one dimension"
        )
    remaining = max(0, int((share * saved_seconds.total - least) * budget.TICK))
    ranks = dict(zip(by_layer, budget.allocate(curves, remaining), strict=True))
    return [min(ranks[candidate.layer.name], candidate.full) for candidate in candidates]


def apply_ranks(layer: AttentionLayer, ranked: Sequence[tuple[Candidate, int]]) -> None:
    """Write a layer at the ranks of its parts; a part at its full rank stays unchanged."""
    reduced = [(candidate, rank) for candidate, rank in ranked if rank < candidate.full]
    products = {
        candidate.parts[0]: (candidate.factors, [rank] * len(candidate.factors))
        for candidate, rank in reduced
        if candidate.parts[0] in PRODUCTS
    }
    if products:
        layer.write(apply_products(layer.read(), products.get("qk"), products.get("vo")))
        return
    for candidate, rank in reduced:
        for name, product in zip(candidate.parts, candidate.factors, strict=True):
            put_product(layer, name, *product.truncate(rank))
