"""The seed of params enters the key of every job that draws, and nothing else changes with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from stages import embeddings, forecasts, geometry, heads, spectra, theory, tokens
from stages.config.params import Params, load
from stages.planning import planning
from store.files import write_parquet
from tasks.embeddings import sample_seed
from tasks.job import Job
from tsfmscope.series.synthetic.kernelsynth import kernelsynth_series
from tsfmscope.series.tables import series_table

ROOT = Path(__file__).parents[2]
CELL = {
    "model": "t5", "base_model": None, "size_parameter": None, "size_rule": None, "dataset": "linear-2",
    "condition": "noisy", "noise": 0.1,
}  # fmt: skip
DRAWING = {
    "tokenize", "embed", "measure", "align", "lemma1", "head_partition", "token_plane", "evaluate", "validate",
    "theory_bounds", "theory_points",
}  # fmt: skip


@pytest.fixture
def at_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Params]:
    """Params of a study of one model on one data set, whose dumps are there whatever the seed."""
    monkeypatch.chdir(tmp_path)
    write_parquet(Path("data/kernelsynth/series/linear-2.parquet"), series_table(kernelsynth_series(4, 0)))
    model = {"model": "t5", "family": "chronos-t5", "modality": "series", "ref": "r", "fingerprint": "f"}
    row = CELL | {"context": 64, "n_windows": 3, "path": "x.arrow", "fingerprint": "d"}
    monkeypatch.setattr(planning, "checkpoints", lambda compressed=True: {"t5": model | {"options": None}})
    monkeypatch.setattr(planning, "dumps", lambda stage: [row])
    monkeypatch.setattr(planning, "inputs", lambda model, *files: {"model:r": "f"})
    for stage in (geometry, spectra):
        monkeypatch.setattr(stage, "layers", lambda path: [("encoder", 0, False), ("encoder", 1, True)])

    def make(seed: int) -> Params:
        block: dict[str, Any] = yaml.safe_load((ROOT / "params/smoke.yaml").read_text())
        block["models"] = {"t5": {"family": "chronos-t5", "ref": "checkpoint:chronos-t5-mini"}}
        study = {"title": "s", "models": ["t5"], "datasets": ["linear-2"], "conditions": ["noisy"]}
        block["studies"] = {"s": study | {"measures": ["isotropy", "validation", "planes", "inputs"]}}
        block |= {"report": {"study": "s"}, "seed": seed}
        Path("params.yaml").write_text(yaml.safe_dump(block))
        return load("params.yaml")

    return make


def _jobs(params: Params) -> list[Job]:
    stages = (tokens, embeddings, geometry, heads, spectra, forecasts, theory)
    return [planned.job for stage in stages for planned in stage.plan(params)]


def test_another_seed_gives_every_job_that_draws_another_key(at_seed: Callable[[int], Params]) -> None:
    first, same, other = (_jobs(at_seed(seed)) for seed in (0, 0, 5))
    assert [job.key for job in first] == [job.key for job in same]
    assert len(first) == len(other)
    changed = {a.task.name for a, b in zip(first, other, strict=True) if a.key != b.key}
    kept = {a.task.name for a, b in zip(first, other, strict=True) if a.key == b.key}
    assert changed == DRAWING
    assert kept == {"input_spectrum"}  # takes all rows: draws nothing


def test_the_seed_decides_which_tokens_are_kept_and_what_heads_read(at_seed: Callable[[int], Params]) -> None:
    first, other = ({job.task.name: job for job in _jobs(at_seed(seed)) if job.task.name in DRAWING} for seed in (0, 5))
    assert sample_seed(first["embed"]) != sample_seed(other["embed"])
    for name in ("align", "lemma1", "head_partition", "token_plane"):
        assert first[name].spec_seed != other[name].spec_seed
