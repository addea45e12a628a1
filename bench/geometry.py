"""Clusters of one layer compared with plain scikit-learn: KMeans(n_init=10) and silhouette_score for each K = 2..10.

    python -m bench.geometry [--quick]

The data are real embeddings and isotropic Gaussian rows. The embeddings are the last encoder states of a
base-shape T5 with seeded random weights, and the last states of the widest committed checkpoint. Both models
read the series of TSFMSCOPE_DATA or ../shared/data, else those that ship with statsmodels. Then the benchmark
shows how our time grows with N, d and K. Times are CPU seconds of the process, which stay comparable on a busy
machine: run it on one thread.

The last line is JSON: speedup (the least over the real embeddings), speedup_gaussian, speedup_few_rows (of the
spectrum of few rows against numpy's eigh of np.cov), peak_mb (the most that ours allocated in addition to the
states), same_k (whether K agreed everywhere), worst_inertia (ours over scikit-learn's), and zeta_error (the
difference of our ζ′ of scikit-learn's labels from a plain loop over pairs).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import time
import tracemalloc
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tsfmscope.errors import ModelError
from tsfmscope.geometry.clusters import choose_clusters
from tsfmscope.geometry.cosine import adjusted_cosine
from tsfmscope.geometry.options import ClusterOptions
from tsfmscope.geometry.spectrum import covariance_spectrum, effective_dimension
from tsfmscope.models.base import Family
from tsfmscope.models.registry import family_class
from tsfmscope.models.types import TokenKind, Tokens
from tsfmscope.series.files.sources import BUNDLED, load_bundled, load_parquet, select
from tsfmscope.series.types import Series
from tsfmscope.series.windows import spread_windows

ROOT = Path(__file__).resolve().parents[1]
K_MAX = 10
CONTEXT, HORIZON = 512, 64
ROWS = 16_384
# rows of T5's states, of the checkpoint's (narrow, so scikit-learn is quick), and Gaussian rows
QUICK = (4096, 8192, 3072)
# width of the Gaussian rows, on which scikit-learn takes longest
QUICK_WIDTH = 256
# encoder of t5-base with Chronos' vocabulary; the decoder is not used
BASE = {
    "d_model": 768, "d_ff": 3072, "d_kv": 64, "num_heads": 12, "num_layers": 12, "num_decoder_layers": 1,
    "context_length": CONTEXT, "prediction_length": HORIZON, "n_tokens": 4096, "dropout_rate": 0.0,
}  # fmt: skip
# kinds of tokens that stand for values
VALUES = (TokenKind.OBSERVATION, TokenKind.FUTURE)
# shape of states with fewer rows than dimensions, and repeats of its spectrum
FEW_ROWS, REPEATS = (64, 1024), 5
# number of rows on which ζ′ is checked pair by pair
PAIRS = 2048


@dataclass(frozen=True)
class ClusteringRun:
    """Result of one side: CPU seconds, the chosen K, the inertias for K = 2..K_MAX, and labels [N].

    labels: for scikit-learn those of K = 2, for ours those of the chosen K.
    """

    seconds: float
    k: int
    inertias: list[float]
    labels: np.ndarray


def plain(states: np.ndarray) -> ClusteringRun:
    """Run K-means and silhouette of scikit-learn, one K after the other."""
    from sklearn.cluster import KMeans
    from sklearn.metrics import silhouette_score

    start = time.process_time()
    fits = [KMeans(k, n_init=10, random_state=0).fit(states) for k in range(2, K_MAX + 1)]
    scores = [silhouette_score(states, fit.labels_) for fit in fits]
    seconds = time.process_time() - start
    best = int(np.argmax(scores))
    return ClusteringRun(
        seconds, best + 2 if scores[best] >= 0.1 else 1, [fit.inertia_ for fit in fits], fits[0].labels_
    )


def run_ours(states: np.ndarray) -> ClusteringRun:
    """Run the clustering of tsfmscope.geometry, from states to labels."""
    start = time.process_time()
    clusters = choose_clusters(states, seed=0)
    seconds = time.process_time() - start
    total = float(np.square(states - states.mean(axis=0, dtype=np.float64)).sum())
    return ClusteringRun(seconds, clusters.k, [total * inertia for inertia in clusters.inertias], clusters.labels)


def compare(name: str, states: np.ndarray) -> dict[str, float]:
    """Print one line of the table; return the values that the last line needs."""
    ours, theirs = run_ours(states), plain(states)
    tracemalloc.start()
    choose_clusters(states, seed=0)
    peak = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    worst = max(a / b for a, b in zip(ours.inertias, theirs.inertias, strict=True))
    mean = float(np.mean([a / b for a, b in zip(ours.inertias, theirs.inertias, strict=True)]))
    eigenvalues = covariance_spectrum(states).eigenvalues
    dimensions = "/".join(str(effective_dimension(eigenvalues, share)) for share in (0.8, 0.99))
    ratio = theirs.seconds / ours.seconds
    off = zeta_error(states, theirs.labels)
    n, width = states.shape
    print(
        f"{name:22s} {n:6d} {width:5d} {dimensions:>9s} {ours.seconds:8.2f} {theirs.seconds:9.2f} {ratio:6.1f}x"
        f" {ours.k:4d} {theirs.k:5d} {worst:9.5f} {mean:9.5f} {off:8.0e} {peak:8.1f} {n * width * 8 / 2**20:8.1f}",
        flush=True,
    )
    return {"ratio": ratio, "peak": peak, "same": ours.k == theirs.k, "worst": worst, "off": off}


def zeta_error(states: np.ndarray, labels: np.ndarray) -> float:
    """Return the difference of ζ′ from a mean over pairs of rows in clusters, on the first PAIRS rows."""
    states, labels = states[:PAIRS].astype(np.float64), labels[:PAIRS]
    means = []
    for label in np.unique(labels):
        rows = states[labels == label]
        units = rows - rows.mean(axis=0)
        units /= np.linalg.norm(units, axis=1, keepdims=True)
        cosines = units @ units.T
        if len(rows) >= 30:
            means.append((cosines.sum() - np.trace(cosines)) / (len(rows) * (len(rows) - 1)))
    zeta = adjusted_cosine(states, labels).mean
    return abs(zeta - float(np.mean(means))) if zeta is not None else 0.0


def real_states(family: Family, rows: int) -> np.ndarray:
    """Return the last states [rows, d] of tokens of values, in the stack with most rows per window."""
    per_window = family.rows_per_window(CONTEXT, HORIZON)
    stack = max(per_window, key=lambda name: per_window[name])
    states_of_windows = []
    for tokens in enough_tokens(family, stack, rows, per_window[stack]):
        last = deque((layer for layer in family.hidden_states(tokens) if layer.stack == stack), maxlen=1).pop()
        states_of_windows.append(last.states[np.isin(tokens.kinds[stack], VALUES)])
    states = np.concatenate(states_of_windows)
    return states[np.sort(np.random.default_rng(0).choice(len(states), rows, replace=False))].astype(np.float32)


def enough_tokens(family: Family, stack: str, rows: int, per_window: int) -> list[Tokens]:
    """Return tokens of windows spread over the data sets, just enough for `rows` tokens of values.

    Windows of short series overlap. ValueError if the series are too short.
    """
    sets = real_series()
    for factor in (1.1, 1.5, 3, 10, 30, 100):
        needed, batches = math.ceil(factor * rows / per_window), []
        for number, series in enumerate(sets):
            count = needed // len(sets) + (number < needed % len(sets))
            windows, _ = spread_windows(series, context=CONTEXT, horizon=HORIZON, count=max(count, 1))
            batches.append(family.tokenize(windows))
        if sum(int(np.isin(tokens.kinds[stack], VALUES).sum()) for tokens in batches) >= rows:
            return batches
    raise ValueError(f"series: too short for {rows} tokens of {family.name}; name a folder with longer ones")


def real_series() -> list[list[Series]]:
    """Return the data sets of the folder whose series contain a whole window, else those of statsmodels."""
    folder = Path(os.environ.get("TSFMSCOPE_DATA") or ROOT.parent / "shared" / "data")
    sets = [select(load_parquet(path), sample=(16, 0)).series for path in sorted(folder.glob("*.parquet"))]
    sets = [series for series in sets if np.median([len(item.values) for item in series]) >= CONTEXT + HORIZON]
    return sets or [load_bundled(name) for name in BUNDLED]


def widest_checkpoint() -> tuple[str, Family]:
    """Return the committed checkpoint with the widest states, the first by name among equals."""
    models = {}
    for folder in sorted(path.parent for path in (ROOT / "tsfmscope" / "checkpoints").glob("*/recipe.json")):
        recipe = json.loads((folder / "recipe.json").read_text())["recipe"]
        # Raised for a family whose package is not installed.
        with contextlib.suppress(ModelError):
            models[folder.name] = family_class(recipe["family"]).load(folder)
    name = max(models, key=lambda name: models[name].width)
    return name, models[name]


def growth(states: np.ndarray) -> Iterator[str]:
    """Yield lines on how our time grows with each of N, d and K.

    The other two have their usual value: all rows, the full width, or K_MAX.
    """
    n, width = states.shape
    cases = {
        "N": [(rows, width, K_MAX) for rows in (n // 8, n // 4, n // 2, n)],
        "d": [(n, axes, K_MAX) for axes in (width // 8, width // 4, width // 2, width)],
        "K": [(n, width, k_max) for k_max in (5, 10, 20)],
    }
    order = np.random.default_rng(1).permutation(n)
    for name, sizes in cases.items():
        seconds = []
        for rows, axes, k_max in sizes:
            start = time.process_time()
            choose_clusters(states[np.sort(order[:rows]), :axes], ClusterOptions(k_max=k_max), seed=0)
            seconds.append(time.process_time() - start)
        values = [size["NdK".index(name)] for size in sizes]
        slope = np.polyfit(np.log(values), np.log(seconds), 1)[0]
        times = "  ".join(f"{value}: {second:.2f} s" for value, second in zip(values, seconds, strict=True))
        yield f"time against {name}: {times}  (exponent {slope:.2f})"


def compare_few_rows() -> float:
    """Print seconds of the covariance spectrum of FEW_ROWS, and of numpy's eigh of np.cov; return their ratio."""
    states = np.random.default_rng(2).standard_normal(FEW_ROWS)
    seconds = []
    for spectrum in (covariance_spectrum, lambda rows: np.linalg.eigh(np.cov(rows.T))):
        spectrum(states)
        start = time.process_time()
        for _ in range(REPEATS):
            spectrum(states)
        seconds.append((time.process_time() - start) / REPEATS)
    ours, theirs = seconds
    rows, width = FEW_ROWS
    print(f"spectrum of {rows} rows of width {width}: ours {ours:.4f} s, eigh of np.cov {theirs:.4f} s", flush=True)
    return theirs / ours


def main() -> None:
    """Run the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rows, and narrower Gaussian ones; under a minute")
    quick = parser.parse_args().quick
    sizes, width = (QUICK, QUICK_WIDTH) if quick else ((ROWS,) * 3, BASE["d_model"])
    print(
        f"{'states':22s} {'N':>6s} {'d':>5s} {'d(.8/.99)':>9s} {'ours s':>8s} {'sklearn s':>9s} {'ratio':>7s} {'K':>4s}"
        f" {'their':>5s} {'inertia':>9s} {'mean':>9s} {'zeta′':>8s} {'peak MB':>8s} {'N d MB':>8s}"
    )
    # First calls load libraries.
    warm = np.random.default_rng(0).standard_normal((300, 8))
    run_ours(warm), plain(warm)
    name, checkpoint = widest_checkpoint()
    base = real_states(family_class("chronos-t5").new(BASE, seed=0), sizes[0])
    real = [compare("random T5 base", base), compare(name, real_states(checkpoint, sizes[1]))]
    gaussian = np.random.default_rng(0).standard_normal((sizes[2], int(width)), dtype=np.float32)
    rows = [*real, compare("isotropic Gaussian", gaussian)]
    for line in growth(base[: len(base) // 2] if quick else base):
        print(line, flush=True)
    few_rows = compare_few_rows()
    print(json.dumps({
        "speedup": round(min(row["ratio"] for row in real), 2),
        "speedup_gaussian": round(rows[-1]["ratio"], 2),
        "speedup_few_rows": round(few_rows, 1),
        "peak_mb": round(max(row["peak"] for row in rows), 1),
        "same_k": all(row["same"] for row in rows),
        "worst_inertia": round(max(row["worst"] for row in rows), 6),
        "zeta_error": max(row["off"] for row in rows),
    }))  # fmt: skip


if __name__ == "__main__":
    main()
