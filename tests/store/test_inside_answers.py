"""Answers on probes, ablation and similarity against the same numbers from pandas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tests.store.conftest import open_results, valid_row
from tsfmscope.functions.probe import ProbeReport

STUDY = [{"study": "s", "stage": "inside", "job_key": "k"}]
IDENTITY = {"model": "m", "dataset": "d", "condition": "c", "context": 64, "noise": 0.0}


def draw_scores(model: str = "m") -> pd.DataFrame:
    """Rows of `probes` of two factors, three layers and five numbers of directions."""
    rng = np.random.default_rng(5)
    rows: list[dict[str, Any]] = []
    for factor, measure, chance in (("period", "R²", 0.0), ("kernel", "AUC", 0.5), ("nothing", "R²", -2.0)):
        shared = {"model": model, "factor": factor, "measure": measure, "width": 16, "n_series": 90, "context": 64}
        shared |= {"base_model": None, "dataset": None, "condition": None, "noise": None, "low": 0.0, "high": 1.0}
        for features in ("untrained states", "states"):
            for layer, normed in ((0, False), (1, False), (1, True)):
                place = {"features": features, "stack": "encoder", "layer": layer, "normed": normed}
                rows.append(shared | place | {"value": chance + 0.4 * rng.random()})
                counts = (1, 2, 4, 8, 16) if features == "states" else ()
                curve = np.sort(chance + 0.4 * rng.random(len(counts)))
                facts = {"epsilon": 0.01, "numerical_rank": 3 + layer, "share": 0.8, "effective_dimension": 2 + layer}
                rows += [
                    shared | place | facts | {"directions": n, "value": value}
                    for n, value in zip(counts, curve, strict=True)
                ]
        for features in ("window", "simple features"):
            rows.append(shared | {"features": features, "value": chance + 0.3 * rng.random()})
    return pd.DataFrame(rows).astype({"layer": "Int64", "normed": "boolean", "directions": "Int64"})


def to_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    present = frame.astype(object).where(frame.notna(), None)
    return [{str(k): v for k, v in row.items()} | {"job_key": "k"} for row in present.to_dict("records")]


def test_the_best_layer_and_its_directions_are_those_of_the_report_of_probe(tmp_path: Path) -> None:
    frame = draw_scores()
    tables = {"probes": to_rows(frame), "study_jobs": STUDY}
    with open_results(tmp_path, tables) as connection:
        found = connection.sql("select * from best_probes").df().set_index("factor")
    curves = frame[frame["directions"].notna()]
    expected = ProbeReport(frame[frame["directions"].isna()], curves, "", []).best_layers().set_index("factor")
    assert set(found.index) == {"period", "kernel", "nothing"}
    for factor, row in expected.iterrows():
        assert (found["layer"][factor], found["normed"][factor]) == (row["layer"], row["normed"])
        assert found["value"][factor] == row["value"]
        assert pd.isna(found["directions"][factor]) == pd.isna(row["directions"])
        assert pd.isna(row["directions"]) or found["directions"][factor] == row["directions"]
    assert pd.isna(found["directions"]["nothing"])
    window = frame[(frame["factor"] == "period") & (frame["features"] == "window")]["value"].item()
    assert found["in_window"]["period"] == window


def test_a_training_learns_a_factor_by_its_best_layer_at_each_step(tmp_path: Path) -> None:
    frames = [draw_scores("run-step-10"), draw_scores("run")]
    frames[1]["value"] += 0.1
    members = [
        valid_row("population") | {"model": model, "run": "run", "step": step, "is_final": is_final, "job_key": "k"}
        for model, step, is_final in (("run-step-10", 10, False), ("run", 40, True))
    ]
    tables = {"probes": to_rows(pd.concat(frames)), "population": members, "study_jobs": STUDY}
    with open_results(tmp_path, tables) as connection:
        found = connection.sql("select * from learned_factors where factor = 'period' order by step").df()
    assert list(found["step"]) == [10, 40]
    for frame, value in zip(frames, found["value"], strict=True):
        own = frame.query("factor == 'period' and features == 'states'")
        assert value == own[own["directions"].isna()]["value"].max()


def test_parts_that_can_go_are_listed_without_early_exits(tmp_path: Path) -> None:
    shared = valid_row("ablation") | IDENTITY | {"dataset": None, "stack": "encoder", "way": "skip", "job_key": "k"}
    rows = [
        shared | {"kind": "mlp", "part": "MLP", "layer": 1, "can_go": True, "ratio": 1.001},
        shared | {"kind": "layer", "part": "layer", "layer": 1, "can_go": False, "ratio": 1.2},
        shared | {"kind": "exit", "part": "early exit", "layer": 3, "can_go": True, "ratio": 1.0},
    ]
    with open_results(tmp_path, {"ablation": rows, "study_jobs": STUDY}) as connection:
        found = connection.sql("select kind, layer, ratio from removable_parts").fetchall()
    assert found == [("mlp", 1, 1.001)]


def test_moved_layers_compare_a_changed_model_with_its_original_at_the_same_layer(tmp_path: Path) -> None:
    rng, rows = np.random.default_rng(2), []
    # Compressed against its original; a snapshot against the last weights of its training; two unrelated models.
    pairs = (("m@half", "m", "m"), ("run-step-10", None, "run"), ("m", None, "other"))
    for (model, base, other), dataset in ((pair, d) for pair in pairs for d in ("d0", "d1")):
        for a, b in ((a, b) for a in (0, 1) for b in (0, 1)):
            cka = rng.uniform(0.5, 1)
            rows.append(
                valid_row("similarity") | IDENTITY
                | {"model": model, "base_model": base, "other": other, "dataset": dataset, "layer": a, "other_layer": b}
                | {"stack": "e", "other_stack": "e", "normed": False, "other_normed": False, "procrustes": 0.1}
                | {"cka": cka, "cka_low": cka - 0.1, "cka_high": cka + 0.1, "job_key": "k"}
            )  # fmt: skip
    member = valid_row("population") | {"model": "run-step-10", "run": "run", "job_key": "k"}
    names = {name for model, _, other in pairs for name in (model, other)}
    checkpoints = [valid_row("checkpoints") | {"model": name} for name in sorted(names)]
    tables = {"similarity": rows, "population": [member], "study_jobs": STUDY, "checkpoints": checkpoints}
    with open_results(tmp_path, tables) as connection:
        found = connection.sql("select * from moved_layers").df()
    assert set(found["model"]) == {"m@half", "run-step-10"}
    frame = pd.DataFrame(rows)
    own = frame[(frame["model"] == "m@half") & (frame["layer"] == 1) & (frame["other_layer"] == 1)]
    row = found[(found["model"] == "m@half") & (found["layer"] == 1)].iloc[0]
    np.testing.assert_allclose(row["moved"], 1 - own["cka"].mean())
    np.testing.assert_allclose((row["low"], row["high"]), (1 - own["cka_high"].max(), 1 - own["cka_low"].min()))
    assert row["n_datasets"] == 2
