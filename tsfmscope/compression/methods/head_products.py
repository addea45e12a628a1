"""Methods joint and activation-aware: narrower heads with the least error of the products Q-K and V-O."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tsfmscope.compression import products
from tsfmscope.compression.calibration import Moments
from tsfmscope.compression.candidates import Candidate, count_parameters
from tsfmscope.compression.products import Factors
from tsfmscope.models.common.attention import AttentionLayer, Projections


def head_products(layer: AttentionLayer, projections: Projections, moments: Moments | None) -> Iterator[Candidate]:
    """Yield the products of heads: Q-K if nothing lies between projection and product, and V-O always."""
    if moments is None:
        qk, vo, shares = _plain_parts(layer, projections)
    else:
        qk, vo, shares = _weighted_parts(layer, projections, moments)
    widths = projections.widths
    if layer.plain:
        query_size = projections.q.shape[2] + (projections.q_bias is not None)
        per_rank = len(projections.q) * query_size + len(projections.k) * projections.k.shape[2]
        yield _heads(layer, "qk", qk, shares.qk, per_rank * np.arange(1, widths.key + 1))
    has_bias = projections.o_bias is not None or projections.v_bias is not None
    bias = projections.o.shape[1] if has_bias else 0
    per_rank = len(projections.o) * projections.o.shape[1] + len(projections.v) * projections.v.shape[2]
    yield _heads(layer, "vo", vo, shares.vo, bias + per_rank * np.arange(1, widths.value + 1))


Parts = tuple[list[Factors], list[Factors], products.Shares]


def _plain_parts(layer: AttentionLayer, projections: Projections) -> Parts:
    qk, vo = products.score_factors(projections) if layer.plain else [], products.output_factors(projections)
    return qk, vo, products.Shares([1.0] * len(qk), [1.0] * len(vo))


def _weighted_parts(layer: AttentionLayer, projections: Projections, moments: Moments) -> Parts:
    qk = products.weighted_score_factors(projections, moments.queries, moments.keys) if layer.plain else []
    key_rows = float(np.square(moments.inputs[:, 0]).sum())
    shares = products.output_shares(projections, qk, moments.head_outputs, moments.keys, key_rows)
    return qk, products.weighted_output_factors(projections, moments.head_outputs), shares


def _heads(
    layer: AttentionLayer, part: str, factors: list[Factors], shares: list[float], costs: np.ndarray
) -> Candidate:
    costs[-1] = before = count_parameters([layer], part)
    return Candidate(layer, (part,), factors, len(costs), costs, before, shares)
