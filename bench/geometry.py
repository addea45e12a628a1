"""Clusters of one layer against scikit-learn's plain way: KMeans(n_init=10) and silhouette_score for each K.

    python -m bench.geometry [--quick]

Prints a table and, as its last line, JSON: speedup (low-rank rows), speedup_gaussian (isotropic rows), both the least
over the sizes, and peak_mb, the most that ours allocated. Synthetic rows; both sides run in this process on as many
threads as the environment allows.
"""

from __future__ import annotations

import argparse
import json
import time
import tracemalloc
from dataclasses import dataclass

import numpy as np

from tasks.geometry.clusters import choose_clusters
from tasks.geometry.measure import measure_states

SIZES = ((2048, 64), (8192, 256), (16384, 768))  # rows, width
QUICK = SIZES[:1]
RANK = 6  # dimensions that hold most of the variance: what trained encoders show
K_MAX = 10


@dataclass(frozen=True)
class Peer:
    """What scikit-learn finds, and how long it takes."""

    seconds: float
    k: int
    inertias: list[float]


def rows(kind: str, n: int, width: int) -> np.ndarray:
    """Seeded float32 rows: `gaussian` is isotropic; `low rank` has 8 islands in RANK dimensions and a little noise."""
    rng = np.random.default_rng([n, width])
    noise = rng.standard_normal((n, width))
    if kind == "gaussian":
        return noise.astype(np.float32)
    inside = 3 * rng.standard_normal((8, RANK))[rng.integers(8, size=n)] + rng.standard_normal((n, RANK))
    return (inside @ rng.standard_normal((RANK, width)) + 0.01 * noise).astype(np.float32)


def plain(states: np.ndarray) -> Peer:
    """K-means and silhouette of scikit-learn, one K after the other."""
    from sklearn.cluster import KMeans
    from sklearn.metrics import silhouette_score

    begun = time.perf_counter()
    fits = [KMeans(k, n_init=10, random_state=0).fit(states) for k in range(2, K_MAX + 1)]
    scores = [silhouette_score(states, fit.labels_) for fit in fits]
    seconds = time.perf_counter() - begun
    best = int(np.argmax(scores))
    return Peer(seconds, best + 2 if scores[best] >= 0.1 else 1, [fit.inertia_ for fit in fits])


def compare(kind: str, n: int, width: int) -> tuple[float, float]:
    """Print one line of the table; the ratio of times, and MiB that ours allocated at most."""
    states = rows(kind, n, width)
    begun = time.perf_counter()
    ours = choose_clusters(states, seed=0)
    clusters = time.perf_counter() - begun
    begun = time.perf_counter()
    measure_states(states, seed=0)
    whole = time.perf_counter() - begun
    tracemalloc.start()
    choose_clusters(states, seed=0)
    peak = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    peer = plain(states)
    total = float(np.square(states - states.mean(axis=0, dtype=np.float64)).sum())
    worst = max(a * total / b for a, b in zip(ours.inertias, peer.inertias, strict=True))
    ratio = peer.seconds / clusters
    print(
        f"{kind:9s} {n:6d} {width:5d} {clusters:9.3f} {whole:9.3f} {peer.seconds:9.3f} {ratio:6.1f}x"
        f" {ours.k:4d} {peer.k:4d} {worst:9.5f} {peak:8.1f} {n * width * 8 / 2**20:8.1f}",
        flush=True,
    )
    return ratio, peak


def main() -> None:
    """Run the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the smallest size only")
    sizes = QUICK if parser.parse_args().quick else SIZES
    print(
        f"{'rows':9s} {'N':>6s} {'d':>5s} {'ours s':>9s} {'measure s':>9s} {'sklearn s':>9s} {'ratio':>7s}"
        f" {'K':>4s} {'their':>4s} {'inertia':>9s} {'peak MB':>8s} {'N d MB':>8s}"
    )
    choose_clusters(rows("gaussian", 100, 8), seed=0)  # first calls load libraries
    low = [compare("low rank", *size) for size in sizes]
    gaussian = [compare("gaussian", *size) for size in sizes]
    least = {"speedup": min(r for r, _ in low), "speedup_gaussian": min(r for r, _ in gaussian)}
    print(json.dumps({**least, "peak_mb": max(p for _, p in low + gaussian)}))


if __name__ == "__main__":
    main()
