"""A model that runs in bfloat16, in the jobs of every stage: what it shares with its base, and what it does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from stages import checkpoints, compression, embeddings, forecasts, spectra
from stages.config.params import Params, load
from stages.planning import planning
from store.files import write_parquet
from tasks.parts import CellIdentity
from tsfmscope.series.synthetic.kernelsynth import kernelsynth_series
from tsfmscope.series.tables import series_table

ROOT = Path(__file__).parents[2]
BASE, ROUNDED, SMALLER, OTHER = "t5", "t5-rounded", "t5-rounded@joint", "t5-other"
HALF = {"precision": "bfloat16"}


@pytest.fixture
def params(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Params:
    """A base, the same weights in bfloat16, that one compressed, and a model of other weights made from the base."""
    monkeypatch.chdir(tmp_path)
    block = yaml.safe_load((ROOT / "params/smoke.yaml").read_text())
    of_base = {"family": "chronos-t5", "ref": "checkpoint:chronos-t5-mini"}
    block["models"] = {
        BASE: of_base,
        ROUNDED: of_base | {"options": HALF, "base_model": BASE},
        OTHER: of_base | {"ref": "folder", "base_model": BASE},
    }
    block["compression"]["methods"] = {"joint": {"method": "joint", "ranks": {"share": 0.5}}}
    study = {"title": "s", "models": [BASE, ROUNDED, SMALLER, OTHER], "datasets": ["linear-2"], "conditions": ["noisy"]}
    block["studies"] = {"s": study | {"measures": ["isotropy", "validation", "inputs", "weights"]}}
    block["report"] = {"study": "s"}
    write_parquet(Path("data/kernelsynth/series/linear-2.parquet"), series_table(kernelsynth_series(4, 0)))
    Path("params.yaml").write_text(yaml.safe_dump(block))
    return load("params.yaml")


def rows(fingerprints: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Of `checkpoints`; the fingerprint tells weights apart."""
    half = json.dumps(HALF)
    plain = {"family": "chronos-t5", "modality": "series", "ref": "r", "options": None, "recipe": "k"}
    options = {ROUNDED: half, SMALLER: half}
    return {
        name: {**plain, "model": name, "fingerprint": mark, "options": options.get(name)}
        for name, mark in fingerprints.items()
    }


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    found = rows({BASE: "a", ROUNDED: "a", SMALLER: "b", OTHER: "c"})
    monkeypatch.setattr(planning, "checkpoints", lambda compressed=True: found)
    return found


def test_samples_are_drawn_by_the_bases_seeds_where_the_precision_alone_differs(params: Params, made: Any) -> None:
    for task in (forecasts.TASK, forecasts.EARLIER):
        jobs = {one.job.spec["model"]: one.job for one in forecasts.plan(params) if one.job.task is task}
        assert jobs[ROUNDED].spec["seeded_as"] == jobs[BASE].key
        assert jobs[ROUNDED].spec["options"] == HALF
        assert not {name for name, job in jobs.items() if "seeded_as" in job.spec} - {ROUNDED}


def test_tokens_are_sampled_as_those_of_the_first_model_in_the_chain(params: Params, made: Any) -> None:
    place = {
        "size_parameter": None, "size_rule": None, "dataset": "linear-2", "condition": "noisy", "context": 64,
        "noise": 0.1,
    }  # fmt: skip
    cells = {
        name: CellIdentity.model_validate(place | {"model": name, "base_model": params.models[name].base_model})
        for name in made
    }
    specs = {name: embeddings.spec(params, cell, made).to_dict() for name, cell in cells.items()}
    first = {"model": BASE, "base_model": None, "family": "chronos-t5", "ref": "r"}
    assert [specs[name].get("sampled_as") for name in made] == [None, first, first, first]


def test_spectra_are_told_what_the_weights_were_rounded_to_and_keys_of_others_stay(params: Params, made: Any) -> None:
    for name in made:
        made[name]["ref"] = "nowhere"
    jobs = {
        one.job.spec["model"]: one.job for one in spectra._weight_jobs(params, made) if one.job.task is spectra.WEIGHTS
    }
    assert {name: job.spec.get("weights_dtype") for name, job in jobs.items()} == {
        BASE: None, ROUNDED: "bfloat16", SMALLER: "bfloat16", OTHER: None,
    }  # fmt: skip
    assert planning.rounding(params, BASE) == planning.rounding(params, OTHER) is None


def test_skill_is_that_of_the_model_as_it_runs(params: Params, made: Any) -> None:
    """One that is made from no other, since the weights of a variant are its base's."""
    alone = params.model_copy(update={"models": {BASE: params.models[BASE].model_copy(update={"options": HALF})}})
    alone.studies["s"] = alone.studies["s"].model_copy(update={"models": [BASE]})
    (plain,) = checkpoints._skill_jobs(alone, [made[BASE]])
    (rounded,) = checkpoints._skill_jobs(alone, [made[BASE] | {"options": json.dumps(HALF)}])
    assert "options" not in plain.job.spec and rounded.job.spec["options"] == HALF


def test_what_is_compressed_is_the_stored_model(params: Params, made: Any) -> None:
    assert "options" not in compression.compression_job(params, SMALLER, made).spec
    assert planning.model_source(made[SMALLER]).options == HALF
