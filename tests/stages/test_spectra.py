"""Which loaded models the jobs of stage spectra share."""

from __future__ import annotations

import shutil
from collections import defaultdict
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

from stages import spectra
from stages.config.params import load
from tasks.sweep.job_queue import group_of
from tasks.sweep.placement import ActorResources
from tsfmscope.models import registry

ROOT = Path(__file__).parents[2]
MODEL = "chronos-t5-nano"


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """A checkpoint with snapshots of its training, each of other weights."""
    folder = tmp_path / MODEL
    shutil.copytree(ROOT / "tests" / "checkpoints" / MODEL, folder)
    for step in (0, 100):
        snapshot = folder / registry.SNAPSHOTS / f"step-{step}"
        snapshot.mkdir(parents=True)
        shutil.copy(folder / "config.json", snapshot)
        weights = load_file(folder / "model.safetensors")
        save_file({name: array * (1 + step) / 2 for name, array in weights.items()}, snapshot / "model.safetensors")
    return folder


def test_a_snapshot_shares_its_loaded_model_with_no_other_and_the_finished_one_with_all_else_of_it(
    trained: Path,
) -> None:
    row = {"family": "chronos-t5", "ref": str(trained), "options": None, "fingerprint": registry.fingerprint(trained)}
    planned = list(spectra._weight_jobs(load(ROOT / "params" / "smoke.yaml"), {MODEL: row}))
    jobs = [one.job for one in planned if one.job.task.loader]

    assert {job.group for job in jobs} == {MODEL}, "the group is the model's plain name"
    groups = defaultdict(set)
    for job in jobs:
        groups[group_of(job, ActorResources())].add((job.task.name, job.spec.get("step")))
    assert sorted(groups.values(), key=len) == [
        {("weight_spectra", 0)},
        {("weight_spectra", 100)},
        {("weight_spectra", None), ("row_angles", None)},
    ]
    for group, (job, *_) in (
        (group, [job for job in jobs if group_of(job, ActorResources()) == group]) for group in groups
    ):
        ((_, fingerprint),) = group.models
        assert registry.fingerprint(Path(job.spec["ref"])) == fingerprint, "what is loaded is what the shelf names"
