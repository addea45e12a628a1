"""Jobs of stage inside: which models are probed, ablated and compared."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from stages import inside
from stages.config.params import Params, load, parse
from store.files import write_parquet, write_rows
from tests.store.conftest import valid_row
from tsfmscope.models import registry
from tsfmscope.series.synthetic.kernelsynth import kernelsynth_series
from tsfmscope.series.tables import series_table

ROOT = Path(__file__).parents[2]
NANO = ("chronos-bolt-nano", "chronos-t5-nano")


def make_params(**study: Any) -> Params:
    block = yaml.safe_load((ROOT / "params/smoke.yaml").read_text())
    block["studies"] = {"inside": block["studies"]["inside"] | study}
    block["report"] = {}
    return parse(yaml.safe_dump(block))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the checkpoints and series of the smoke profile."""
    monkeypatch.chdir(tmp_path)
    rows = []
    for name in NANO:
        path = Path("data/checkpoints/models", name)
        shutil.copytree(ROOT / "tests" / "checkpoints" / name, path)
        family = name.removesuffix("-nano")
        facts = {"model": name, "family": family, "ref": path.as_posix(), "modality": "series", "options": None}
        rows.append(valid_row("checkpoints") | facts | {"fingerprint": registry.fingerprint(path)})
    write_rows(Path("data/checkpoints/checkpoints/rows.parquet"), "checkpoints", rows)
    for seed, name in enumerate(("linear-2", "seasonality-2")):
        write_parquet(Path(f"data/kernelsynth/series/{name}.parquet"), series_table(kernelsynth_series(4, seed)))
    return tmp_path


def test_each_model_is_probed_and_ablated_once_and_each_pair_is_compared_on_each_data_set(folder: Path) -> None:
    params = make_params(datasets=["linear-2", "seasonality-2"], conditions=["context-128", "noisy"])
    jobs = [planned.job for planned in inside.plan(params)]
    assert Counter(job.task.name for job in jobs) == {"probe": 2, "ablate": 4, "compare": 4}
    assert len({job.key for job in jobs}) == len(jobs)
    ablated = next(job for job in jobs if job.task.name == "ablate")
    files = {f"data/kernelsynth/series/{name}.parquet" for name in ("linear-2", "seasonality-2")}
    assert {*ablated.spec["windows"]} == files < {*ablated.inputs}
    assert inside.read(ablated).keys() == files


def test_a_data_set_that_is_not_on_this_machine_is_left_out(folder: Path) -> None:
    params = make_params(datasets=["linear-2", "macrodata"])
    tasks = Counter(planned.job.task.name for planned in inside.plan(params))
    assert tasks == {"probe": 2, "ablate": 2, "compare": 1}


def test_two_studies_share_a_job_of_the_same_models_and_data(folder: Path) -> None:
    params = make_params(datasets=["linear-2"])
    params.studies["again"] = params.studies["inside"].model_copy(update={"title": "Again"})
    planned = list(inside.plan(params))
    assert {tuple(item.studies) for item in planned} == {("inside", "again")}
    assert len({item.job.key for item in planned}) == len(planned) == 5


def test_changed_models_are_compared_with_their_original_and_originals_with_each_other() -> None:
    params = load(ROOT / "params.yaml")
    names = ["chronos-bolt-mini", "chronos-bolt-mini@svd-budget-0.25", "ttm-mini"]
    assert list(inside.list_pairs(params, names)) == [(names[1], names[0]), (names[0], names[2])]
    # Without its original, a changed model is compared with the others.
    assert list(inside.list_pairs(params, names[1:])) == [(names[1], names[2])]


def test_snapshots_are_compared_with_the_last_weights_of_their_training() -> None:
    params = load(ROOT / "params" / "population.yaml")
    assert params.population is not None
    members = [member for member in params.population.members() if member.run == "moirai-small-0"]
    pairs = list(inside.list_pairs(params, [member.model for member in members]))
    assert pairs == [(member.model, "moirai-small-0") for member in members if not member.is_final]
