"""The answers on ranks against the same numbers from numpy, on spectra made by a seed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tests.store.conftest import open_inferred_results

EPSILONS = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 1e-4)
WIDTH = 16
MODELS = {"a": "series", "b": "series", "t": "text", "u": "text"}
DATASETS = {"series": ["noise", "sinusoid", "real"], "text": ["novel"]}


def numerical_rank(sigma: np.ndarray, epsilon: float) -> int:
    return int((sigma / sigma[0] > epsilon).sum())


@pytest.fixture(scope="module")
def spectra() -> list[dict[str, Any]]:
    """Inputs of layers 0..3, weights of blocks 1..3 whole and by head, a constant input with its special tokens."""
    rng, rows = np.random.default_rng(5), []

    def sigma(n: int) -> list[float]:
        return sorted((10 ** -rng.uniform(0, 5, size=n)).tolist(), reverse=True)

    for model, modality in MODELS.items():
        base = {"model": model, "dtype": "float32", "floor": 3e-4, "job_key": "k", "stack": "encoder"}
        for dataset in DATASETS[modality]:
            cell = base | {"dataset": dataset, "condition": "c", "context": 64, "noise": 0.0, "what": "input"}
            for layer in range(4):
                shape = {"layer": layer, "normed": False, "n_rows": 99, "n_columns": WIDTH, "tokens": "valued"}
                rows.append(cell | shape | {"singular_values": sigma(WIDTH), "singular_values_centred": sigma(WIDTH)})
            rows.append(rows[-1] | {"normed": True})
        for layer in range(4):
            shape = {"layer": layer, "normed": False, "n_rows": 9, "n_columns": WIDTH, "tokens": "with_special"}
            cell = {"dataset": "zero", "condition": "c", "context": 64, "noise": 0.0, "what": "constant"}
            rows.append(base | cell | shape | {"singular_values": sigma(9)})
        for layer in range(1, 4):
            for matrix, shape in {"q": (16, 16), "v": (16, 16), "mlp_in": (32, 16)}.items():
                attention = None if matrix == "mlp_in" else "self"
                heads = None if matrix == "mlp_in" else 4
                one = {"what": "weight", "matrix": matrix, "attention": attention, "heads": heads, "layer": layer}
                one |= {"reason": "idle"} if (model, matrix, layer) == ("a", "v", 3) else {}
                size = {"n_rows": shape[0], "n_columns": shape[1]}
                rows.append(base | one | size | {"singular_values": sigma(16)})
                for head in range(heads or 0):
                    part = {"head": head, "n_rows": 4, "n_columns": 16}
                    rows.append(base | one | part | {"singular_values": sigma(4)})
    return rows


@pytest.fixture(scope="module")
def connection(spectra, rows, tmp_path_factory: pytest.TempPathFactory):
    folder: Path = tmp_path_factory.mktemp("ranks")
    x_axis = json.dumps({"a": 2.0, "b": 8.0})
    tables = {
        "spectra": spectra,
        "checkpoints": [
            rows["checkpoints"] | {"model": model, "family": modality, "modality": modality}
            for model, modality in MODELS.items()
        ],
        "study_jobs": [{"study": "s", "stage": "spectra", "job_key": "k"}],
        "studies": [rows["studies"] | {"study": "s", "figure": "ranks Fig. 2", "x_axis": x_axis}],
    }
    with open_inferred_results(folder, tables) as opened:
        yield opened


def rank_of(spectra: list[dict[str, Any]], epsilon: float, **where: Any) -> list[int]:
    """Numerical ranks of the rows that are so, in the order of their layers."""
    found = [row for row in spectra if all(row.get(name) == value for name, value in where.items())]
    return [
        numerical_rank(np.array(row["singular_values"]), epsilon) for row in sorted(found, key=lambda r: r["layer"])
    ]


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_flow_of_ranks_counts_what_numpy_counts(connection, spectra, epsilon: float) -> None:
    columns = "numerical_rank, share, depth, below_noise_floor"
    asked = f"select {columns} from flow_of_ranks where model = 'a' and dataset = 'real'"
    found = connection.execute(asked + " and epsilon = ? order by layer", [epsilon]).fetchall()
    expected = rank_of(spectra, epsilon, model="a", dataset="real", normed=False)
    assert [row[0] for row in found] == expected
    assert [row[1] for row in found] == [rank / WIDTH for rank in expected]
    assert [row[2] for row in found] == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert {row[3] for row in found} == {epsilon < 3e-4}


def test_heads_stand_beside_their_whole_matrix(connection, spectra) -> None:
    asked = "select whole_rank, head_rank, head_rank_low, head_rank_high, head_width, width from head_ranks"
    (found,) = connection.execute(
        asked + " where model = 'b' and layer = 2 and matrix = 'q' and epsilon = 0.01"
    ).fetchall()
    heads = rank_of(spectra, 0.01, model="b", layer=2, matrix="q", n_rows=4)
    (whole,) = rank_of(spectra, 0.01, model="b", layer=2, matrix="q", n_rows=16)
    assert found == (whole, pytest.approx(np.mean(heads)), min(heads), max(heads), 4, 16)


def test_decay_is_the_slope_of_the_logarithms_above_the_floor(connection, spectra) -> None:
    asked = "select power, rate, n_above_floor, stable_rank from spectral_decay where model = 't' and what = 'input'"
    (found,) = connection.execute(asked + " and dataset = 'novel' and layer = 1").fetchall()
    (row,) = [r for r in spectra if r["model"] == "t" and r.get("dataset") == "novel" and r["layer"] == 1]
    ratio = np.array(row["singular_values"]) / row["singular_values"][0]
    kept, j = ratio > 3e-4, np.arange(1, 17)
    power, rate = (np.polyfit(x[kept], np.log(ratio[kept]), 1)[0] for x in (np.log(j), j))
    assert found == (pytest.approx(power), pytest.approx(rate), kept.sum(), pytest.approx((ratio**2).sum()))


def test_the_slope_of_a_model_is_the_mean_over_its_data_sets(connection, spectra) -> None:
    asked = "select n, estimate from rank_tests where measure = 'input slope@0.01' and block = 'a'"
    slopes = [
        stats.linregress(
            np.arange(4) / 3, np.array(rank_of(spectra, 0.01, model="a", dataset=name, normed=False)) / WIDTH
        )
        for name in DATASETS["series"]
    ]
    assert connection.execute(asked).fetchall() == [(3, pytest.approx(np.mean([fit.slope for fit in slopes])))]


def test_modalities_are_compared_by_the_means_of_their_families(connection, spectra) -> None:
    asked = "select n, estimate from rank_tests where measure = 'embedding@0.001' and \"grouping\" = 'modality'"
    shares = {
        model: np.mean([rank_of(spectra, 1e-3, model=model, dataset=name, layer=0)[0] for name in DATASETS[modality]])
        / WIDTH
        for model, modality in MODELS.items()
    }
    expected = (shares["a"] + shares["b"]) / 2 - (shares["t"] + shares["u"]) / 2
    assert connection.execute(asked).fetchall() == [(2, pytest.approx(expected))]  # families


def test_a_trend_runs_along_the_logarithm_of_what_the_study_varies(connection, spectra) -> None:
    asked = "select n, estimate from rank_tests where measure = 'query@0.1' and \"grouping\" = 'x_axis'"
    shares = [np.mean(rank_of(spectra, 0.1, model=model, matrix="q", n_rows=16)) / 16 for model in "ab"]
    assert connection.execute(asked).fetchall() == [(2, pytest.approx((shares[1] - shares[0]) / 2))]


def test_noise_is_held_against_the_sinusoid_model_by_model(connection, spectra) -> None:
    asked = "select n, estimate from rank_tests where measure = 'noise less sinusoid@0.01'"
    changes = [
        rank_of(spectra, 0.01, model=model, dataset="noise", layer=0)[0]
        - rank_of(spectra, 0.01, model=model, dataset="sinusoid", layer=0)[0]
        for model in "ab"
    ]
    assert connection.execute(asked).fetchall() == [(2, pytest.approx(np.mean(changes) / WIDTH))]


def test_a_constant_series_grows_by_its_special_tokens(connection, spectra) -> None:
    asked = "select estimate from rank_tests where measure = 'constant slope@0.01' and block = 't'"
    shares = np.array(rank_of(spectra, 0.01, model="t", tokens="with_special")) / 9
    assert connection.execute(asked).fetchall() == [(pytest.approx(stats.linregress(np.arange(4) / 3, shares).slope),)]


def test_a_matrix_that_weighs_nothing_is_in_no_answer_and_no_test(connection) -> None:
    idle = "model = 'a' and layer = 3 and matrix = 'v'"
    assert connection.execute(f"select count(*) from spectra where {idle}").fetchall() == [(5,)]
    for answer in ("weight_ranks", "head_ranks"):
        assert connection.execute(f"select count(*) from {answer} where {idle}").fetchall() == [(0,)]
