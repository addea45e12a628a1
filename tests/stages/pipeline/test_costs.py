"""Predicted costs against the jobs of the stages: rows, bytes and memory; and what a budget asks to change."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tsfmscope.stages import embeddings, tokens
from tsfmscope.stages.config.params import Params
from tsfmscope.stages.pipeline.budgets import Budget, Prediction, Workers, find_changes
from tsfmscope.stages.pipeline.costs import START_SECONDS, Cost, Settings, predict_costs
from tsfmscope.stages.pipeline.kernel_sets import draw_kernel_set
from tsfmscope.stages.pipeline.load_series import load_data_set
from tsfmscope.stages.pipeline.planned_cells import PlannedCell, plan_cells
from tsfmscope.store.dumps import write_dump
from tsfmscope.tasks.entries.embeddings import embed
from tsfmscope.tasks.entries.parts import CellIdentity
from tsfmscope.tasks.entries.tokens import tokenize
from tsfmscope.tasks.job import Job
from tsfmscope.tasks.models import registry
from tsfmscope.tasks.series.tables import series_table
from tsfmscope.tasks.speed import CORE, gpu_speed

ROOT = Path(__file__).parents[3]
MODELS = ("chronos-t5-nano", "patchtst-nano", "lag-llama-nano")
STUDY = {"title": "t", "models": "all", "datasets": "all", "conditions": "all"}
BLOCK: dict[str, Any] = {
    "models": {name: {} for name in MODELS},
    "datasets": {"max_series": 5, "sets": {"linear-2": {}, "macrodata": {}, "nile": {}}},
    "conditions": {"short": {"context": 96}},
    "studies": {"mine": STUDY},
    "kernelsynth": {"series": 7, "length": 400},
    "tokens": {"rows": 300},
    "embeddings": {"rows": 300},
    "geometry": {"rows": 300},
    "forecasts": {"samples": 2},
    "checkpoints": {"committed": str(ROOT / "checkpoints")},
}


@pytest.fixture(scope="module")
def params() -> Params:
    return Params.model_validate(BLOCK)


def test_settings_are_those_of_the_blocks() -> None:
    geometry = {"rows": 300, "restarts": 3, "permutations": 7, "repeats": 4}
    settings = Settings.of(Params.model_validate(BLOCK | {"geometry": geometry}))
    assert settings.draws._asdict() == {"restarts": 3, "permutations": 7, "repeats": 4}
    assert (settings.geometry_rows, settings.rows, settings.max_series, settings.samples) == (300, 300, 5, 2)


@pytest.fixture(scope="module")
def cells(params: Params) -> list[PlannedCell]:
    plan = plan_cells(params)
    assert plan.unknown == {}
    return list(plan.cells)


def of_stage(cell: PlannedCell, params: Params, stage: str) -> Cost:
    (row,) = [row for row in predict_costs([cell], Settings.of(params), CORE, CORE) if row.stage == stage]
    return row


def test_rows_and_bytes_are_those_that_the_jobs_write(params: Params, cells: list[PlannedCell], tmp_path: Path) -> None:
    assert {cell.cell.model for cell in cells} == set(MODELS)
    assert len(cells) == 9
    for cell in cells:
        name, dataset = cell.cell.model, params.datasets.sets[cell.cell.dataset]
        if dataset.source == "kernelsynth":
            series = draw_kernel_set(cell.cell.dataset, dataset, params, params.seed)
        else:
            series = load_data_set(cell.cell.dataset, dataset, params, max_series=5, seed=params.seed).series
        family, folder = params.models[name].family, ROOT / "checkpoints" / name
        model = registry.load(family, folder, options={})
        row: Mapping[str, Any] = {"family": family, "ref": str(folder), "options": None}
        read = series_table(series)

        job = Job(tokens.TASK, tokens.spec(params, cell.cell, row).to_dict())
        made = tokenize(job, read, model)
        dump = write_dump(tmp_path, "dumps/tokens.arrow", made.dump)
        predicted = of_stage(cell, params, "tokens")
        assert predicted.rows == dump["rows"], cell.cell
        assert predicted.bytes == pytest.approx(dump["bytes"], rel=0.05, abs=8000), cell.cell

        job = Job(embeddings.TASK, embeddings.spec(params, CellIdentity.part_of(made.rows[0]), {name: row}).to_dict())
        dump = write_dump(tmp_path, "dumps/states.arrow", embed(job, made.dump[0], model).dump)
        predicted = of_stage(cell, params, "embeddings")
        assert predicted.rows == dump["rows"], cell.cell
        assert predicted.bytes == pytest.approx(dump["bytes"], rel=0.05), cell.cell

        assert of_stage(cell, params, "forecasts").rows == len(series), cell.cell


PEAK = """
import json, sys
import numpy as np
from pathlib import Path
from tsfmscope.store.dumps import write_dump
from tsfmscope.tasks import cost, lens
from tsfmscope.tasks.entries.embeddings import _tables, schema
from tsfmscope.tasks.models import registry
from tsfmscope.tasks.process_memory import peak_bytes_since_start
from tsfmscope.tasks.series.types import Series

family, folder, out = sys.argv[1:]
model = registry.load(family, Path(folder), options={})
walk = np.cumsum(np.random.default_rng(0).normal(size=2000)).astype(np.float32) + 50
tokens = lens.tokenize(model, [Series("x", "x", walk, "", "")], context=500, horizon=24, rows=4096, seed=0).tokens
kept, _, layers = lens.hidden_states(model, tokens, rows=4096, seed=0)
write_dump(Path(out), "dumps/s.arrow", _tables(layers, tokens, kept, schema(model.width, "float32")))
size = cost.model_size(model)
rows = {stack: len(ids) for stack, ids in kept.items()}
states = cost.states_bytes(size, rows, sum(kinds.size for kinds in tokens.kinds.values()))
print(json.dumps([max(states, cost.load_bytes(size)), peak_bytes_since_start()]))
"""


@pytest.mark.parametrize(("family", "model"), [("chronos-t5", "chronos-t5-mini"), ("lag-llama", "lag-llama-mini")])
def test_the_memory_of_a_process_is_predicted_within_a_fifth(family: str, model: str, tmp_path: Path) -> None:
    """Packages take nine tenths of it at this size; docs/results/rehearsal.md has large models."""
    arguments = [sys.executable, "-c", PEAK, family, str(ROOT / "checkpoints" / model), str(tmp_path)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    predicted, measured = json.loads(done.stdout.splitlines()[-1])
    assert predicted == pytest.approx(measured, rel=0.2)


def prediction(params: Params, cells: list[PlannedCell], workers: int = 1) -> Prediction:
    return Prediction(cells, Settings.of(params), CORE, CORE, Workers(workers, workers))


def test_each_change_alone_brings_the_cost_within_its_limit(params: Params, cells: list[PlannedCell]) -> None:
    whole = prediction(params, cells)
    total = whole.total()
    budget = Budget(bytes=total.bytes / 2, seconds=total.seconds / 2.5)
    changes = list(find_changes(whole, budget))
    assert {(change.limit, change.key) for change in changes} >= {
        ("bytes", "embeddings.rows"),
        ("bytes", "models"),
        ("seconds", "resources.actors"),
        ("seconds", "models"),
    }
    for change in changes:
        assert getattr(change.total, change.limit) <= getattr(budget, change.limit), change
    (rows,) = [change for change in changes if (change.limit, change.key) == ("bytes", "embeddings.rows")]
    smaller = Params.model_validate(BLOCK | {"embeddings": {"rows": rows.value}})
    assert prediction(smaller, cells).total() == rows.total


def test_models_of_a_family_share_the_start_of_a_stage(params: Params, cells: list[PlannedCell]) -> None:
    alone = [cell for cell in cells if cell.cell.model == "patchtst-nano"]
    copies = [replace(cell, cell=cell.cell._replace(model="copy")) for cell in alone]
    one, two = (prediction(params, planned).rows() for planned in (alone, alone + copies))
    for stage in {row.stage for row in one}:
        (single,) = [row.seconds for row in one if row.stage == stage]
        first, second = [row.seconds for row in two if row.stage == stage]
        assert first == second == pytest.approx(single - START_SECONDS / 2)


def test_only_series_of_files_are_limited(params: Params, cells: list[PlannedCell]) -> None:
    assert {cell.cell.dataset for cell in cells if not cell.is_limited} == {"linear-2"}
    for is_limited in (False, True):
        many = [replace(cell, series=400, windows=400, forecasts=400, is_limited=is_limited) for cell in cells]
        whole = prediction(params, many)
        whole, few = (replace(whole, settings=replace(whole.settings, max_series=most)) for most in (400, 20))
        assert sum(row.rows for row in few.rows() if row.stage == "forecasts") == 9 * (20 if is_limited else 400)
        least = replace(whole, settings=replace(whole.settings, max_series=16)).total().seconds
        changes = find_changes(whole, Budget(seconds=min(least, 0.999 * whole.total().seconds)))
        assert ("datasets.max_series" in {change.key for change in changes}) == is_limited


def test_a_budget_that_is_kept_asks_for_nothing(params: Params, cells: list[PlannedCell]) -> None:
    whole = prediction(params, cells)
    total = whole.total()
    assert list(find_changes(whole, Budget(total.bytes, total.seconds))) == []
    assert whole.total().seconds == pytest.approx(2 * prediction(params, cells, 2).total().seconds)


def test_a_gpu_has_its_own_memory_and_geometry_stays_on_the_cores(params: Params, cells: list[PlannedCell]) -> None:
    on_gpu = predict_costs(cells, Settings.of(params), gpu_speed("h100"), CORE)
    on_core = predict_costs(cells, Settings.of(params), CORE, CORE)
    seconds = dict.fromkeys(("embeddings", "geometry"), (0.0, 0.0))
    for gpu, core in zip(on_gpu, on_core, strict=True):
        assert (gpu.device_bytes is not None) == (gpu.stage in ("embeddings", "forecasts"))
        assert core.device_bytes is None
        if gpu.stage in seconds:
            first, second = seconds[gpu.stage]
            seconds[gpu.stage] = (first + gpu.seconds, second + core.seconds)
    assert seconds["geometry"][0] == seconds["geometry"][1]
    assert seconds["embeddings"][0] < seconds["embeddings"][1]
