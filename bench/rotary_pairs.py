"""Narrower rotary queries and keys: whole pairs against thin factors, at equal size.

    python -m bench.rotary_pairs [--quick] [--models NAME ...]

Queries and keys of rotary attention keep a share of their coordinates. Score error: squared error of the scores divided
by the mean squared score, averaged over heads; lag, query and key are taken as independent. WQL: pooled, on the last
windows of data sets that did not calibrate, over that of the dense model, with a 95 % interval. Values, outputs and
MLPs stay.

| choice | pairs that stay |
| --- | --- |
| score error + fit | those with the least score error, by backward elimination, with refitted queries |
| norms | the largest norm of queries times norm of keys, as in A³ (arXiv 2505.12942) and MHA2MLA (arXiv 2502.14837) |
| norms + fit | the same, with queries refitted to the keys of these pairs |
| fast | those of the highest frequencies |
| thin factors | all: W_Q and W_K become two thin factors each (`activation-aware-svd`) |

A removed pair is a pair of zero rows. Models with a token per step (Time-MoE, Lag-Llama) are scored on two series per
data set and calibrated on 8 windows per data set and 32 synthetic series of 256 steps; Chronos-2 as in
bench/compression_race.py. Series: folder TSFMSCOPE_DATA.
Last line JSON: score error and WQL ratio by model, choice and share.
"""

from __future__ import annotations

import argparse
import copy
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from bench.compression_race import WHOLE_RACE, Race, RaceSize
from bench.truncation_trained import load_series, log_wql, ratio
from tsfmscope.compression.calibration import Moments, gather
from tsfmscope.compression.methods.whole_matrices import single_matrices
from tsfmscope.compression.refit import RIDGE
from tsfmscope.models.common.attention import AttentionLayer
from tsfmscope.models.common.low_rank import put_product

# A model with a token per step.
LONG = RaceSize(series=2, windows=8, context=256, synthetic=32)
# Model -> kind of the rotary attention, whether a query reads no later key, and the size of its race.
MODELS = {
    "chronos-2-mini": ("time", False, WHOLE_RACE),
    "time-moe-mini": ("self", True, LONG),
    "lag-llama-mini": ("self", True, LONG),
}
# Base of the rotary angles of all three.
BASE = 10_000.0
SHARES = (0.5, 0.25)


class Head(NamedTuple):
    """Pairs p of a head: rows p and p + P of W_Q and W_K.

    moments: N, second moments of the rotated keys, mean over lags. queries: W_Q A^½, with A the second moments of the
    queries' inputs. weights: W_Q with its bias as last column. norms: norm of the queries times norm of the keys.
    """

    moments: np.ndarray
    queries: np.ndarray
    weights: np.ndarray
    norms: np.ndarray


def heads_of(layer: AttentionLayer, moments: Moments, tokens: int, *, causal: bool) -> list[Head]:
    """Return the heads of a layer that has one key head per query head."""
    read, heads = layer.read(), []
    raw, centred = lag_moments(read.widths.key, tokens, causal=causal)
    # The constant 1 of a row comes last, like a bias.
    query_root, key_root = (np.roll(root, -1, axis=1) for root in (moments.queries, moments.inputs))
    for head in range(layer.heads):
        query, key = (
            np.column_stack((weight[head], np.zeros(len(weight[head])) if bias is None else bias[head]))
            for weight, bias in ((read.q, read.q_bias), (read.k, read.k_bias))
        )
        varying, total = _second_moments(moments.keys, key[:, :-1]), _second_moments(key_root, key)
        rotated = _rotated(varying, raw) + _rotated(total - varying, centred)
        squares = _pair_sums(_second_moments(query_root, query)) * _pair_sums(total)
        # On the change of the queries.
        penalty = RIDGE * np.trace(rotated) / len(rotated) * np.eye(len(rotated))
        heads.append(Head(rotated + penalty, query @ query_root.T, query, np.sqrt(squares)))
    return heads


def lag_moments(width: int, tokens: int, *, causal: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return second moments [a, b, p, q] of the cosines and sines of the angles of pairs p and q.

    They are means over the queries of a window and the keys that each reads. The second result is about the mean over
    the keys of a query, since a softmax ignores what is equal for all of them.
    """
    frequencies = BASE ** -(np.arange(0, width, 2) / width)
    raw, means = np.zeros(()), np.zeros(())
    for query in range(tokens):
        lags = np.arange(query + 1 if causal else tokens) - query
        functions = np.stack((np.cos(lags[:, None] * frequencies), np.sin(lags[:, None] * frequencies)))
        raw = raw + np.einsum("alp,blq->abpq", functions, functions) / len(lags) / tokens
        mean = functions.mean(axis=1)
        means = means + np.einsum("ap,bq->abpq", mean, mean) / tokens
    return raw, raw - means


def by_score_error(head: Head) -> np.ndarray:
    """Return the pairs in the order of backward elimination (Optimal Brain Surgeon with pairs as units)."""
    left, order = list(range(len(head.norms))), []
    while left:
        costs = [fitted_error(head, np.array([other for other in left if other != pair], dtype=int)) for pair in left]
        order.append(left.pop(int(np.argmin(costs))))
    return np.array(order)


# Choice -> order of removal, and whether the queries are fitted.
CHOICES: dict[str, tuple[Callable[[Head], np.ndarray], bool]] = {
    "score error + fit": (by_score_error, True),
    "norms": (lambda head: np.argsort(head.norms), False),
    "norms + fit": (lambda head: np.argsort(head.norms), True),
    "fast": (lambda head: np.arange(len(head.norms))[::-1], False),
}


def fitted_error(head: Head, pairs: np.ndarray) -> float:
    """Return the relative squared error of the scores with these pairs and the best queries."""
    change = best_queries(head, pairs) - np.eye(len(head.moments))
    return _error(head, change)


def best_queries(head: Head, pairs: np.ndarray) -> np.ndarray:
    """Return the map from W_Q to the queries with the least score error.

    N_SS⁻¹ N_S: in the kept rows S, and zero in the others.
    """
    stay = np.concatenate((pairs, pairs + len(head.norms)))
    mapped = np.zeros_like(head.moments)
    mapped[stay] = np.linalg.solve(head.moments[np.ix_(stay, stay)], head.moments[stay])
    return mapped


def with_fewer_pairs(base: Any, heads: dict[str, list[Head]], choice: str, share: float) -> tuple[Any, float]:
    """Return a copy of a model whose rotary heads keep a share of their pairs, and the mean score error."""
    model, errors = copy.deepcopy(base), []
    order, is_fitted = CHOICES[choice]
    for layer in model.attentions():
        if layer.name not in heads:
            continue
        read = layer.read()
        q, q_bias = read.q.copy(), None if read.q_bias is None else read.q_bias.copy()
        for index, head in enumerate(heads[layer.name]):
            removed = order(head)
            pairs = removed[len(removed) - max(1, int(share * len(removed))) :]
            stay = np.concatenate((pairs, pairs + len(removed)))
            mapped = (
                best_queries(head, pairs) if is_fitted else np.diag(np.isin(np.arange(2 * len(removed)), stay) * 1.0)
            )
            errors.append(_error(head, mapped - np.eye(len(mapped))))
            queries = mapped @ head.weights
            q[index] = queries[:, :-1]
            if q_bias is not None:
                q_bias[index] = queries[:, -1]
        layer.write(read._replace(q=q, q_bias=q_bias))
    return model, float(np.mean(errors))


def with_thin_factors(base: Any, moments: dict[str, Moments], names: set[str], share: float) -> Any:
    """Return a copy of a model whose W_Q and W_K are thin factors with this share of their numbers."""
    model = copy.deepcopy(base)
    for layer in model.attentions():
        for candidate in single_matrices(layer, layer.read(), moments[layer.name]) if layer.name in names else ():
            for part, factors in zip(candidate.parts, candidate.factors, strict=True):
                if part in "qk":
                    rows, columns = layer.linear(part).weight.shape
                    put_product(layer, part, *factors.truncate(max(1, int(share * rows * columns / (rows + columns)))))
    return model


def measure(name: str, shares: tuple[float, ...]) -> dict[str, Any]:
    """Return, by choice and share, the score error and the WQL ratio with its interval; print the rows."""
    kind, causal, size = MODELS[name]
    race = Race(name, load_series(), size)
    parts = race.calibration(0).tokens
    moments = gather(race.base, *parts)
    tokens = max(part.kinds[race.base.output_stack].shape[1] for part in parts)
    heads = {
        layer.name: heads_of(layer, moments[layer.name], tokens, causal=causal)
        for layer in race.base.attentions()
        if layer.kind == kind
    }
    rows: dict[str, Any] = {}
    for share in shares:
        for choice in (*CHOICES, "thin factors"):
            if choice in CHOICES:
                model, error = with_fewer_pairs(race.base, heads, choice, share)
            else:
                model, error = with_thin_factors(race.base, moments, set(heads), share), None
            logs = [log_wql(model, windows) - race.dense[key] for key, windows in race.windows.items()]
            mean, low, high = ratio(np.array(logs))
            rows.setdefault(choice, {})[str(share)] = {"score_error": error, "wql": [mean, low, high]}
            shown = "" if error is None else f"{error:.3f}"
            print(f"{name:16s} {share:5.2f} {choice:18s} {shown:>12s} {mean:8.3f} [{low:.3f}, {high:.3f}]", flush=True)
    return rows


def _error(head: Head, change: np.ndarray) -> float:
    changed = change @ head.queries
    return float(np.sum(changed * (head.moments @ changed)) / np.sum(head.queries * (head.moments @ head.queries)))


def _second_moments(root: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    rows = root @ matrix.T
    moments: np.ndarray = rows.T @ rows
    return moments


def _pair_sums(moments: np.ndarray) -> np.ndarray:
    sums: np.ndarray = np.diagonal(moments).reshape(2, -1).sum(axis=0)
    return sums


def _rotated(moments: np.ndarray, lags: np.ndarray) -> np.ndarray:
    """Return the mean over lags of R M Rᵀ, with R = cos + sin J of every pair."""
    half = len(moments) // 2
    turn = np.block([[np.zeros((half, half)), -np.eye(half)], [np.eye(half), np.zeros((half, half))]])
    powers = (np.eye(2 * half), turn)
    return np.sum(
        [np.tile(lags[a, b], (2, 2)) * (powers[a] @ moments @ powers[b].T) for a in range(2) for b in range(2)], axis=0
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="lag-llama-mini at a half, whatever --models names")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    names, shares = (["lag-llama-mini"], SHARES[:1]) if options.quick else (options.models, SHARES)
    print(f"{'model':16s} {'share':>5s} {'choice':18s} {'score error':>12s} {'WQL':>8s}")
    print(json.dumps({name: measure(name, shares) for name in names}))


if __name__ == "__main__":
    main()
