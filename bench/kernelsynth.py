"""KernelSynth compared with the released recipe and two plainer samplers: series per second, memory, covariance error.

    python -m bench.kernelsynth [--quick]

The other samplers draw from the same compositions. `released` is the Chronos release's scikit-learn
GaussianProcessRegressor.sample_y (an SVD of the covariance), `eigh` is the unused sampler in the same script,
and `cholesky` is numpy's with jitter. Each runs in a process of its own, on one core and on two (ours: two
processes). Their times include the kernel matrix; ours include the choice of the kernels and their
expressions too. The others are timed on fewer series, since their cost hardly depends on the kernel. `priors` is
the other source of `tsfmscope corpus`, one series at a time as in a corpus.

Last line JSON: speedup_per_core (released over ours, one core, J = 5), speedup_stationary (the same on
compositions without DotProduct), series_per_s (one core), priors_ratio (seconds of a series of priors over those
of ours), max_cov_error (sampled covariance against
scikit-learn's, over its largest entry).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from bench.memory import MIB, peak, resident_bytes
from tsfmscope.series.synthetic.kernels import Composition, compositions, series_seeds
from tsfmscope.series.synthetic.kernelsynth import covariance, draw_at, draw_many
from tsfmscope.series.synthetic.priors import draw_from_seed

SEED = 0
LENGTH = 1024
LENGTHS = (256, 512, 1024, 2048, 4096, 8192)
# relative to the largest entry; without jitter, numpy's Cholesky fails on the smooth kernels
JITTER = 1e-6


class Measurement(NamedTuple):
    """Seconds per series, and MiB by which the process grew during the draws."""

    seconds: float
    peak_mb: float


def draw_released(kernel: Composition, grid: np.ndarray, seed: int) -> np.ndarray:
    """Draw a series like sample_from_gp_prior in scripts/kernel-synth.py of chronos-forecasting."""
    from sklearn.gaussian_process import GaussianProcessRegressor

    return GaussianProcessRegressor(kernel=kernel.kernel()).sample_y(grid[:, None], n_samples=1, random_state=seed)


def draw_eigh(kernel: Composition, grid: np.ndarray, seed: int) -> np.ndarray:
    """Draw a series like sample_from_gp_prior_efficient in the same script, which nothing calls."""
    values, vectors = np.linalg.eigh(kernel.kernel()(grid[:, None]))
    noise = np.random.default_rng(seed).standard_normal(len(grid))
    return np.asarray(vectors @ (np.sqrt(np.maximum(values, 0)) * noise))


def draw_cholesky(kernel: Composition, grid: np.ndarray, seed: int) -> np.ndarray:
    """Draw a series with numpy's Cholesky factor, with a jitter that grows until it succeeds."""
    matrix = kernel.kernel()(grid[:, None])
    jitter = JITTER * matrix.max()
    while True:
        try:
            root = np.linalg.cholesky(matrix + jitter * np.eye(len(grid)))
            return np.asarray(root @ np.random.default_rng(seed).standard_normal(len(grid)))
        except np.linalg.LinAlgError:
            jitter *= 10


PEERS = {"released": draw_released, "eigh": draw_eigh, "cholesky": draw_cholesky}


def time_peer(sampler: Callable[..., np.ndarray], indices: Sequence[int], length: int, threads: int) -> Measurement:
    """Time a sampler with one call per series, as the release does."""
    seeds, grid = series_seeds(SEED, indices), np.linspace(0, 1, length)
    kernels = compositions(seeds, length=length)
    before = resident_bytes()
    with threadpool_limits(threads):
        sampler(kernels[0], grid, 0)
        started = time.perf_counter()
        for kernel, seed in zip(kernels, seeds, strict=True):
            sampler(kernel, grid, seed % 2**32)
        return Measurement((time.perf_counter() - started) / len(kernels), (peak() - before) / MIB)


def time_ours(indices: Sequence[int], length: int) -> Measurement:
    """Time our compositions, expressions and draws, in blocks of a thousand; only compiled code is warm."""
    before = resident_bytes()
    with threadpool_limits(1):
        draw_at(indices[:1], SEED, length)
        started = time.perf_counter()
        for first in range(0, len(indices), 1000):
            draw_at(indices[first : first + 1000], SEED, length)
        return Measurement((time.perf_counter() - started) / len(indices), (peak() - before) / MIB)


def time_priors(indices: Sequence[int], length: int) -> Measurement:
    """Time the series of priors that a corpus contains."""
    before, seeds = resident_bytes(), series_seeds(SEED, indices, "priors")
    draw_from_seed(seeds[0], length)
    started = time.perf_counter()
    for seed in seeds:
        draw_from_seed(seed, length)
    return Measurement((time.perf_counter() - started) / len(seeds), (peak() - before) / MIB)


def alone(function: Callable[..., Measurement], *arguments: object) -> Measurement:
    """Run the function in a fresh process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def two_processes(indices: Sequence[int], length: int) -> Measurement:
    """Time ours on two cores, by the slower half."""
    halves = [indices[: len(indices) // 2], indices[len(indices) // 2 :]]
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        measurements = [future.result() for future in [pool.submit(time_ours, half, length) for half in halves]]
    return Measurement(
        max(measurement.seconds for measurement in measurements) / 2,
        sum(measurement.peak_mb for measurement in measurements),
    )


def stationary(count: int) -> list[int]:
    """Return the indices of the first `count` compositions without a DotProduct."""
    indices: list[int] = []
    for first in range(0, 4 * count, 1000):
        kernels = compositions(series_seeds(SEED, range(first, first + 1000)))
        indices += [
            first + offset
            for offset, kernel in enumerate(kernels)
            if all(leaf.name != "DotProduct" for leaf in kernel.leaves)
        ]
    return indices[:count]


def covariance_error(count: int, length: int) -> float:
    """Return the largest error of the sampled covariance for `count` compositions, over the largest entry."""
    grid = np.linspace(0, 1, length)[:, None]
    kernels = (composition.kernel() for composition in compositions(series_seeds(SEED, range(count)), length=length))
    return max(float(np.abs(covariance(k, length) - k(grid)).max() / np.abs(k(grid)).max()) for k in kernels)


def main() -> None:
    """Run the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer series, lengths up to 1024")
    quick = parser.parse_args().quick
    many, few, exact = (4_000, 3, 10) if quick else (50_000, 20, 300)
    # Compiles the code, if it is not compiled yet.
    draw_many(1, SEED)

    print(f"{'sampler':22s} {'cores':>5s} {'ms/series':>10s} {'series/s':>10s} {'ratio':>8s} {'peak MB':>8s}")
    ours = alone(time_ours, range(many), LENGTH)
    _line("tsfmscope", 1, ours, ours)
    _line("tsfmscope", 2, two_processes(range(many), LENGTH), ours)
    calm = stationary(many)
    ours_calm = alone(time_ours, calm, LENGTH)
    _line("tsfmscope, stationary", 1, ours_calm, ours)
    priors = alone(time_priors, range(many // 10), LENGTH)
    _line("priors", 1, priors, ours)
    peers = {}
    for name, sampler in PEERS.items():
        for threads in (1, 2):
            peers[name, threads] = alone(time_peer, sampler, range(few), LENGTH, threads)
            _line(name, threads, peers[name, threads], ours)
    peer_calm = alone(time_peer, draw_released, calm[:few], LENGTH, 1)
    _line("released, stationary", 1, peer_calm, ours_calm)

    print(f"\n{'length':>6s} {'ours ms':>9s} {'us/step':>8s}")
    for length in LENGTHS[: 3 if quick else None]:
        measurement = alone(time_ours, range(many // 2), length)
        print(f"{length:6d} {1e3 * measurement.seconds:9.4f} {1e6 * measurement.seconds / length:8.4f}", flush=True)
    error = covariance_error(exact, LENGTH)
    print(f"\nsampled covariance of {exact} compositions: at most {error:.2e} of the largest entry from scikit-learn's")
    result = {
        "speedup_per_core": peers["released", 1].seconds / ours.seconds,
        "speedup_stationary": peer_calm.seconds / ours_calm.seconds,
        "series_per_s": 1 / ours.seconds,
        "priors_ratio": priors.seconds / ours.seconds,
        "max_cov_error": error,
    }
    print(json.dumps(result))


def _line(name: str, cores: int, measurement: Measurement, reference: Measurement) -> None:
    seconds, rate = measurement.seconds, 1 / measurement.seconds
    ratio = seconds / reference.seconds
    print(
        f"{name:22s} {cores:5d} {1e3 * seconds:10.4f} {rate:10.1f} {ratio:8.1f} {measurement.peak_mb:8.1f}", flush=True
    )


if __name__ == "__main__":
    main()
