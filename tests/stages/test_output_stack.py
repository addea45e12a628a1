"""The rows of a plug-in with unusual names of stacks stand for its output stack in tables and views."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import store
import tsfmscope as ts
from stages.config.blocks import Model
from stages.config.params import load
from stages.geometry import TASK
from stages.planning.checkpoints import checkpoint_row as checkpoint_row_of
from store import catalogue, files
from tasks.geometry import GeometrySpec, MeasureSpec, entry
from tasks.job import Job
from tasks.parts import CellIdentity
from tests.store.conftest import valid_row
from tests.two_stacks import TwoStacks
from tsfmscope import layer_states
from tsfmscope.conformance import findings
from tsfmscope.conformance.subject import Subject
from tsfmscope.models import registry
from tsfmscope.series.types import Series

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model of the plug-in and some series."""
    monkeypatch.setitem(registry.FAMILIES, TwoStacks.name, "tests.two_stacks:TwoStacks")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "checkpoints").symlink_to(ROOT / "tsfmscope" / "checkpoints")
    TwoStacks.new(TwoStacks.example, seed=1).save(tmp_path / "model")
    waves = {f"s{n}": np.sin(np.arange(200) / (3 + n)) + n for n in range(4)}
    pd.DataFrame(waves).to_csv(tmp_path / "mine.csv", index=False)
    return tmp_path


def test_the_plug_in_passes_the_checks_of_every_family_but_one(tmp_path: Path) -> None:
    # Its config counts the blocks of both stacks together.
    subject = Subject(TwoStacks.name, TwoStacks.new(TwoStacks.example, seed=1), TwoStacks.example, tmp_path)
    failed = [finding.check for finding in findings(subject) if finding.verdict == "fail"]
    assert failed == ["layers-are-those-of-the-config"]


def checkpoint_row() -> dict[str, Any]:
    """The model's row of the table `checkpoints`, as the stage writes it."""
    params = load(ROOT / "params" / "smoke.yaml")
    params = params.model_copy(update={"models": {"mine": Model(family=TwoStacks.name, ref="model")}})
    return checkpoint_row_of(params, "mine", {}, {})


def geometry_rows() -> list[dict[str, Any]]:
    """One row per layer of the model, as the stage geometry writes them."""
    model = registry.load(TwoStacks.name, Path("model"), options={})
    walks = np.random.default_rng(0).normal(size=(4, 200)).cumsum(axis=1).astype(np.float32)
    series = [Series("d", f"s{n}", walk) for n, walk in enumerate(walks)]
    tokens = layer_states.tokenize(model, series, context=64, horizon=12, rows=60, seed=0).tokens
    assert tokens is not None
    measure = MeasureSpec(repeats=0, permutations=0, presets=())
    rows = []
    for states in layer_states.hidden_states(model, tokens, rows=60, seed=0).layers:
        facts = {
            "base_model": None, "size_parameter": None, "size_rule": None, **valid_row("geometry"), "model": "mine",
        }  # fmt: skip
        spec = GeometrySpec(
            **dict(CellIdentity.part_of(facts)),
            stack=states.stack,
            layer=states.layer,
            normed=states.normed,
            weights_dtype="float32",
            tokens=60,
            seed=0,
            measure=measure,
        )
        data = {"states": states.states, "types": None, "n_series": 4, "states_dtype": "float32"}
        rows += entry(Job(TASK, spec.to_dict()), data, None).rows
    return rows


def test_the_views_read_the_last_layer_of_the_output_stack(tmp_path: Path) -> None:
    row, rows = checkpoint_row(), geometry_rows()
    assert (row["input_stack"], row["output_stack"]) == ("stem", "backbone")
    assert {(one["stack"], one["layer"], one["normed"]) for one in rows} == {
        *(("stem", 0, False), ("stem", 1, False), ("stem", 1, True)),
        *(("backbone", 0, False), ("backbone", 1, False), ("backbone", 2, False), ("backbone", 2, True)),
    }
    studies = [{"study": "s", "stage": "geometry", "job_key": one["job_key"]} for one in rows]
    tables = {"geometry": rows, "checkpoints": [row], "study_jobs": studies}
    for name, made in tables.items():
        files.write_rows(tmp_path / f"{name}.parquet", name, made)
    catalogue.build(tmp_path / "results.duckdb", {name: [tmp_path / f"{name}.parquet"] for name in tables})
    (last,) = [one for one in rows if (one["stack"], one["normed"]) == ("backbone", True)]
    with store.open(tmp_path / "results.duckdb") as connection:
        layers = connection.sql("select stack, layer, normed, zeta from last_layer").fetchall()
        values = connection.sql("select value from isotropy where measure = 'zeta'").fetchall()
    assert layers == [("backbone", 2, True, last["zeta"])]
    assert values == [(last["zeta"],)]


def test_inspect_reports_both_stacks() -> None:
    layers = ts.inspect("model", "mine.csv", context=64, horizon=12, rows=60).layers
    assert list(layers["stack"]) == ["stem"] * 3 + ["backbone"] * 4
