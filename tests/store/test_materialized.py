"""What is counted without unnesting lists, against numpy on hard spectra; and the bench of it at a toy size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench import store as bench
from bench.store_pandas import QUESTIONS
from bench.store_rows import Rows, Scale
from tests.store.conftest import open_results

RNG = np.random.default_rng(3)
EIGENVALUES = {
    "none": None,
    "empty": [],
    "one": [2.0],
    "no variance": [0.0, 0.0],
    "equal": [1.0] * 10,  # 0.8 of them is reached by the eighth, whatever rounding says
    "below nothing": [4.0, 1.0, -1e-17, -1e-3],
    "falling": np.sort(RNG.lognormal(sigma=3, size=300))[::-1].tolist(),
}
SPECTRA = {
    "empty": [],
    "one": [3.0],
    "zero": [0.0, 0.0, 0.0],
    "at the tolerance": [1.0, 0.1, 0.1, 0.01, 0.001],  # above it counts, at it does not
    "equal": [0.5] * 7,
    **{f"{n} long": np.sort(10 ** -RNG.uniform(0, 5, size=n))[::-1].tolist() for n in (2, 63, 64, 65, 1023)},
}
SHARES, EPSILONS = (0.5, 0.8, 0.9, 0.95, 0.99), (1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 1e-4)


def dimension(values: list[float] | None, share: float) -> int | None:
    reached = np.cumsum(np.maximum(values or [], 0))
    return int((reached < share * reached[-1] * (1 - 1e-12)).sum()) + 1 if len(reached) and reached[-1] > 0 else None


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory, rows):
    folder = tmp_path_factory.mktemp("materialized")
    geometry = [
        rows["geometry"]
        | {"dataset": name, "eigenvalues": values, "job_key": "k"}
        | ({} if values else {"reason": "x"})
        for name, values in EIGENVALUES.items()
    ]
    spectra = [
        rows["spectra"] | {"matrix": name, "n_rows": len(s), "n_columns": len(s), "singular_values": s, "job_key": "k"}
        for name, s in SPECTRA.items()
    ]
    studies = [{"study": "s", "stage": stage, "job_key": "k"} for stage in ("geometry", "spectra")]
    tables = {"geometry": geometry, "spectra": spectra, "study_jobs": studies, "checkpoints": [rows["checkpoints"]]}
    with open_results(folder, tables) as opened:
        yield opened


@pytest.mark.parametrize("name", EIGENVALUES)
def test_dimensions_are_those_of_the_running_sum(connection, name: str) -> None:
    asked = "select width, effective_dimension from effective_dimension where dataset = ? order by variance_share"
    values = EIGENVALUES[name]
    width = None if values is None else len(values)
    assert connection.execute(asked, [name]).fetchall() == [(width, dimension(values, share)) for share in SHARES]


@pytest.mark.parametrize("name", SPECTRA)
def test_halving_counts_the_singular_values_above_the_tolerance(connection, name: str) -> None:
    asked = "select numerical_rank, share from matrix_ranks where matrix = ? order by epsilon desc"
    sigma = np.array(SPECTRA[name])
    counts = [int((sigma > epsilon * sigma[:1]).sum()) for epsilon in EPSILONS]
    shares = [count / len(sigma) if len(sigma) else None for count in counts]
    assert connection.execute(asked, [name]).fetchall() == list(zip(counts, shares, strict=True))


@pytest.mark.parametrize("name", [name for name, values in SPECTRA.items() if values])
def test_decay_is_the_least_squares_line_of_those_above_the_floor(connection, name: str) -> None:
    asked = "select n_above_floor, power, power_r2, rate, rate_r2, stable_rank from spectral_decay where matrix = ?"
    ((n, power, power_r2, rate, rate_r2, stable),) = connection.execute(asked, [name]).fetchall()
    sigma = np.array(SPECTRA[name])
    if sigma[0] == 0:
        assert (n, power, power_r2, rate, rate_r2, stable) == (0, None, None, None, None, None)
        return
    ratio = sigma / sigma[0]
    y, j = np.log(ratio[ratio > 1e-7]), np.arange(1, (ratio > 1e-7).sum() + 1)
    assert (n, stable) == (len(y), pytest.approx((ratio**2).sum()))
    for x, slope, r2 in ((np.log(j), power, power_r2), (j, rate, rate_r2)):
        if len(y) < 2:
            assert slope is None and r2 is None
        else:
            assert slope == pytest.approx(np.polyfit(x, y, 1)[0], rel=1e-9, abs=1e-12)
            assert r2 == pytest.approx(np.corrcoef(x, y)[0, 1] ** 2 if np.ptp(y) else 1, rel=1e-9)


@pytest.mark.slow
def test_the_bench_asks_every_view_and_pandas_agrees(tmp_path: Path) -> None:
    Rows(Scale(studies=1, models=6, datasets=4, width=8, windows=2, spectra=300, spectrum=12)).write(tmp_path)
    built = bench.build(tmp_path)
    assert built["gb"] > 0
    found = bench.each_view(tmp_path / "results.duckdb", ["effective_dimension", "correlation", "timeline"])
    assert {name: one["rows"] for name, one in found.items()} == {
        "effective_dimension": 6 * 4 * 4 * 25 * 5, "correlation": 24, "timeline": 6 * 4 * 4,
    }  # fmt: skip
    assert bench.ranks(tmp_path / "results.duckdb")["rows"] > 0
    for name in QUESTIONS:
        assert bench.compare_with_pandas(tmp_path, name)["rows"] > 0
