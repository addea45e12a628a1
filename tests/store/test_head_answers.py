"""The answers on heads against the same numbers from numpy, on rows made by a seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.store.conftest import open_results

MODELS, DATASETS = ["a", "b"], ["d0", "d1", "d2"]


@pytest.fixture(scope="module")
def measured(rows) -> dict[str, list[dict]]:
    """Rows of the three tables; one overlap and one instance lack their measure."""
    rng = np.random.default_rng(3)
    made: dict[str, list[dict]] = {"alignment": [], "partition": [], "jacobian": []}
    for model in MODELS:
        for dataset in DATASETS:
            cell = {"model": model, "dataset": dataset}
            for layer, head in np.ndindex(2, 4):
                where = cell | {"layer": layer + 1, "head": head, "job_key": "k"}
                overlaps = {"query": rng.uniform(0.2, 0.4), "key": rng.uniform(0.2, 0.4)}
                made["alignment"].append(rows["alignment"] | where | overlaps)
                norm, printed = rng.uniform(0.5, 2.0, size=2)
                sides = {"norm": norm, "printed": printed, "appendix": printed + 1, "safe": printed + 8}
                made["jacobian"].append(rows["jacobian"] | where | sides)
            sd = {"log_z_sd": rng.uniform(), "job_key": "k"}
            made["partition"].append(rows["partition"] | cell | sd)
    made["alignment"][0] |= {"query": None, "key": None, "reason": "no directions"}
    made["jacobian"][0] |= {"norm": None, "reason": "1 token"}
    return made


@pytest.fixture(scope="module")
def connection(measured, rows, tmp_path_factory: pytest.TempPathFactory):
    folder: Path = tmp_path_factory.mktemp("heads")
    cell = {"model": "a", "dataset": "d1"}
    tables = measured | {"checkpoints": [rows["checkpoints"] | {"model": model} for model in MODELS]}
    tables |= {"geometry": [rows["geometry"] | cell | {"job_key": "g"}]}
    tables |= {"forecasts": [rows["forecasts"] | cell | {"job_key": "f"}]}
    keys = {"geometry": "g", "forecasts": "f"}
    tables |= {"study_jobs": [{"study": "s", "stage": stage, "job_key": key} for stage, key in keys.items()]}
    with open_results(folder, tables) as opened:
        yield opened


def test_alignment_is_averaged_over_heads_and_data_sets_with_z_and_the_share_above_chance(connection, measured) -> None:
    answer = connection.sql("select * from spectral_alignment").to_arrow_table().to_pylist()
    assert [(row["model"], row["layer"]) for row in answer] == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]
    for row in answer:
        own = [one for one in measured["alignment"] if (one["model"], one["layer"]) == (row["model"], row["layer"])]
        for side in ("query", "key"):
            overlaps = np.array([one[side] for one in own if one[side] is not None])
            z = (overlaps - 0.25) / 0.02
            assert row[side] == pytest.approx(overlaps.mean())
            assert row[f"{side}_z"] == pytest.approx(z.mean())
            assert row[f"{side}_share_above"] == pytest.approx((z > 2).mean())
        assert (row["n"], row["heads"], row["n_dumps"]) == (12, 4, 3)
    assert [row["n_null"] for row in answer] == [1, 0, 0, 0]
    assert answer[0]["reason"] == "no directions"


def test_heads_as_wide_as_the_states_have_no_z(rows, tmp_path: Path) -> None:
    whole = rows["alignment"] | {"chance": 1.0, "chance_sd": 0.0, "query": 1.0, "key": 1.0, "job_key": "k"}
    tables = {"alignment": [whole], "checkpoints": [rows["checkpoints"]]}
    with open_results(tmp_path, tables) as opened:
        assert opened.sql("select query, query_z, query_share_above from spectral_alignment").fetchall() == [
            (1.0, None, None)
        ]


def test_violations_are_counted_a_side(connection, measured) -> None:
    answer = connection.sql("select * from lemma1").to_arrow_table().to_pylist()
    assert [row["model"] for row in answer] == MODELS
    for row in answer:
        own = [one for one in measured["jacobian"] if one["model"] == row["model"] and one["norm"] is not None]
        for side in ("printed", "appendix", "safe"):
            shares = np.array([one["norm"] / one[side] for one in own])
            assert row[f"{side}_violations"] == (shares > 1).sum()
            assert row[f"{side}_largest_share"] == pytest.approx(shares.max())
        assert row["n"] == len(own)
        assert row["safe_violations"] == 0
    assert [row["n_null"] for row in answer] == [1, 0]
    assert sum(row["printed_violations"] for row in answer) > 0


def test_the_spread_stands_once_a_cell_and_study_beside_isotropy_and_error(connection, measured) -> None:
    answer = connection.sql("select * from partition_spread").to_arrow_table().to_pylist()
    assert len(answer) == len(measured["partition"])
    by_cell = {(row["model"], row["dataset"]): row for row in answer}
    for one in measured["partition"]:
        assert by_cell[one["model"], one["dataset"]]["log_z_sd"] == one["log_z_sd"]
    joined = by_cell["a", "d1"]
    names = ("study", "nmse", "zeta_adjusted", "log_isotropy_scaled")
    assert [joined[name] for name in names] == ["s", 0.5, 0.1, -2.0]
    assert [by_cell["a", "d0"][name] for name in names] == [None] * 4
