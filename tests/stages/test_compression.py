"""Compressed models: what their jobs' keys are of, their folders, and rows that go with a folder or not at all."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from stages import compression, forecasts
from stages.config.params import Params, ParamsError, load
from stages.planning import compressed_models, model_folders, planning
from store.files import write_parquet, write_rows
from store.stage_outputs import read_rows
from store.stage_store import StageStore
from tasks.compression import compress
from tasks.job import Job
from tasks.parts import load_model
from tsfmscope.compression.calibration import calibration_tokens, calibration_windows, white
from tsfmscope.compression.options import METHODS, Calibration, Method
from tsfmscope.compression.truncation import model_candidates
from tsfmscope.errors import DataError
from tsfmscope.models import registry
from tsfmscope.models.chronos import ChronosBolt
from tsfmscope.series.synthetic.kernelsynth import kernelsynth_series
from tsfmscope.series.tables import series_table

ROOT = Path(__file__).parents[2]
SMALL = "chronos-t5-nano@aware-0.5"
TOY = {"d_model": 8, "d_ff": 8, "d_kv": 4, "num_heads": 2, "num_layers": 1, "num_decoder_layers": 1}
TOY |= {"context_length": 16, "prediction_length": 4, "input_patch_size": 8, "input_patch_stride": 8}
Change = Callable[[dict[str, Any]], None]


@pytest.fixture
def params(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Params]:
    """`params(change)`: the smoke profile, changed, in a folder of its own with series and the row of a checkpoint."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "tests" / "checkpoints" / "chronos-t5-nano", "data/checkpoints/models/chronos-t5-nano")
    checkpoint()
    for seed, name in enumerate(("linear-2", "seasonality-2")):
        write_parquet(Path(f"data/kernelsynth/series/{name}.parquet"), series_table(kernelsynth_series(4, seed)))

    def make(change: Change | None = None) -> Params:
        block = yaml.safe_load((ROOT / "params/smoke.yaml").read_text())
        block["compression"]["methods"]["joint-0.5"] = {"method": "joint", "ranks": {"share": 0.5}}
        if change:
            change(block)
        Path("params.yaml").write_text(yaml.safe_dump(block))
        return load("params.yaml")

    return make


def checkpoint() -> None:
    """The row of the base, as stage checkpoints writes it of the folder as it is."""
    ref = "data/checkpoints/models/chronos-t5-nano"
    facts = registry.facts(Path(ref)) | {"fingerprint": registry.fingerprint(Path(ref))}
    row = {"model": "chronos-t5-nano", "family": "chronos-t5", "modality": "series", "source": "committed", "ref": ref}
    row |= {"input_stack": "encoder", "output_stack": "decoder"}
    write_rows(Path("data/checkpoints/checkpoints/00000.parquet"), "checkpoints", [row | facts])


def planned(params: Params, name: str = SMALL) -> Job:
    return compression.compression_job(params, name, planning.checkpoints(compressed=False))


def done(job: Job) -> dict[str, Any]:
    """Do a job here, as a worker would."""
    (row,) = compress(job, compression.read(job), load_model(job)).rows
    return dict(row)


def opened() -> StageStore:
    out = Path("data/compression")
    companion = Path("data/timings/compression")
    return StageStore(out, tables=["compression", "fidelity"], companion=companion, stage="compression")


def test_a_key_is_of_the_base_the_method_and_the_calibration_series_alone(params) -> None:
    first = planned(params())

    def other_ranks(block: dict[str, Any]) -> None:
        block["compression"]["methods"]["aware-0.5"]["ranks"] = {"share": 0.25}

    def other_windows(block: dict[str, Any]) -> None:
        block["compression"]["calibration"]["windows"] = 2

    def elsewhere(block: dict[str, Any]) -> None:
        block["compression"]["fidelity"]["top"] = 5
        block["compression"]["methods"]["another"] = {"method": "svd", "ranks": {"flat": 2}}
        block["conditions"]["noisy"]["noise"] = 0.5

    assert planned(params(elsewhere)).key == first.key
    assert len({planned(params(change)).key for change in (None, other_ranks, other_windows)}) == 3
    write_parquet(Path("data/kernelsynth/series/linear-2.parquet"), series_table(kernelsynth_series(4, 9)))
    assert planned(params()).key != first.key
    config = Path("data/checkpoints/models/chronos-t5-nano/config.json")
    before = planned(params()).key
    config.write_text(config.read_text() + "\n")
    checkpoint()
    assert planned(params()).key != before
    assert set(first.inputs) == {f"model:{config.parent.as_posix()}", *(f"data/kernelsynth/series/{n}.parquet" for n in
                                 ("linear-2", "seasonality-2"))}  # fmt: skip


def test_methods_of_narrower_heads_are_those_whose_time_can_be_measured() -> None:
    model = ChronosBolt.new(TOY, seed=0)
    moments = {layer.name: white(layer.read()) for layer in model.attentions()}
    for name, entry in METHODS.items():
        if entry.candidates:
            method = Method.model_validate({"method": name, "ranks": {"budget": 0.5}})
            parts = {one.parts[0] for one in model_candidates(model, method, moments)}
            assert ("time" in entry.rules) == (parts <= {"qk", "vo"})


def test_a_method_without_data_reads_none(params) -> None:
    def joint(block: dict[str, Any]) -> None:
        block["studies"]["isotropy-layers"]["models"] = ["chronos-t5-nano@joint-0.5"]

    job = planned(params(joint), "chronos-t5-nano@joint-0.5")
    assert "calibration" not in job.spec
    assert list(job.inputs) == ["model:data/checkpoints/models/chronos-t5-nano"]


def test_a_promise_of_single_series_is_part_of_what_is_asked() -> None:
    block = {"method": "activation-aware-2step", "ranks": {"budget": 0.5}}
    assert Method.model_validate(block).to_dict() == block
    assert Method.model_validate(block | {"univariate": False}).to_dict() == block
    assert Method.model_validate(block | {"univariate": True}).to_dict() == block | {"univariate": True}
    assert Method.model_validate(block | {"heal": 0}).to_dict() == block
    healed = Method.model_validate(block | {"heal": 300})
    assert healed.to_dict() == block | {"heal": 300} and healed.reads_data
    assert Method.model_validate(block | {"bits": 32}).to_dict() == block
    assert Method.model_validate(block | {"bits": 8}).to_dict() == block | {"bits": 8}


def test_a_method_that_is_timed_forecasts_calibration_windows_and_all_seconds_keep_all_heads(params) -> None:
    """A whole share is the one of which no clock decides."""

    def timed(block: dict[str, Any]) -> None:
        block["compression"]["methods"]["timed"] = {"method": "joint", "ranks": {"time": 1.0}}
        block["compression"]["calibration"] |= {"windows": 1, "horizon": 4}
        block["studies"]["isotropy-layers"]["models"] = ["chronos-t5-nano@timed"]

    job = planned(params(timed), "chronos-t5-nano@timed")
    assert job.spec["method"] == {"method": "joint", "ranks": {"time": 1.0}}
    assert {"linear-2", "seasonality-2"} == set(job.spec["calibration"]["datasets"])
    row = done(job)
    assert (row["size_parameter"], row["size_rule"]) == (1.0, "time")
    assert (row["rank_ratio"], row["attention_ratio"], row["error"]) == (1.0, 1.0, 0.0)


def test_calibration_series_that_are_not_at_hand_are_named(params, capsys) -> None:
    def ask(block: dict[str, Any]) -> None:
        block["compression"]["calibration"]["datasets"] = ["linear-2", "exchange_rate"]
        block["datasets"]["sets"]["exchange_rate"] = {}

    compressed_models.print_missing(params(ask))
    assert (
        capsys.readouterr().out
        == "compression: calibrated without exchange_rate, whose series are not on this machine\n"
    )
    compressed_models.print_missing(params())
    assert capsys.readouterr().out == ""


def test_calibration_data_of_another_modality_are_refused_in_one_line(params) -> None:
    def text(block: dict[str, Any]) -> None:
        block["datasets"]["sets"]["english"] = {}
        block["compression"]["calibration"]["datasets"] = ["english"]

    with pytest.raises(
        ParamsError, match=r"calibration\.datasets: got \['english'\], expected a data set of modality 'series'"
    ):
        planned(params(text))


def test_a_model_goes_from_its_job_to_a_row_that_every_later_stage_reads(params) -> None:
    made = params()
    job = planned(made)
    row = done(job)
    assert (row["attention_ratio"], row["rank_ratio"]) == (0.5, 0.5)
    assert row["size_ratio"] == row["parameters"] / row["base_parameters"] < 1
    assert not compressed_models.MODELS.exists()  # until it is whole
    folder = compressed_models.MODELS / SMALL
    assert model_folders.publish(folder, job)
    assert model_folders.key_of(folder) == job.key
    assert not (model_folders.WORK / job.key).exists()
    bases = planning.checkpoints(compressed=False)
    write_rows(
        Path("data/compression/checkpoints/00000.parquet"),
        "checkpoints",
        [compressed_models.checkpoint_row(bases, made, SMALL)],
    )
    found = planning.checkpoints()
    assert set(found) == {"chronos-t5-nano", SMALL}
    assert found[SMALL]["parameters"] == row["parameters"]
    assert found[SMALL]["family"] == "chronos-t5"
    loaded = load_model(Job(job.task, planning.model_source(found[SMALL]).to_dict(), planning.inputs(found[SMALL])))
    assert {layer.read().widths for layer in loaded.attentions()} == {(8, 8)}
    cell = planning.Cell(SMALL, "macrodata", "noisy")
    identity = planning.identity(made, cell)
    assert (identity.base_model, identity.size_parameter, identity.size_rule) == ("chronos-t5-nano", 0.5, "share")


def test_a_model_that_runs_in_bfloat16_is_compressed_as_it_is_stored_and_runs_so_afterwards(params) -> None:
    made = params()
    plain = planned(made)
    done(plain)
    (base,) = read_rows(Path("data/checkpoints"), "checkpoints").to_pylist()
    row = base | {"options": json.dumps({"precision": "bfloat16"})}
    write_rows(Path("data/checkpoints/checkpoints/00000.parquet"), "checkpoints", [row])
    job = planned(made)
    assert job.key == plain.key, "the same weights"
    model_folders.publish(compressed_models.MODELS / SMALL, job)
    found = compressed_models.checkpoint_row({"chronos-t5-nano": row}, made, SMALL)
    loaded = load_model(Job(job.task, planning.model_source(found).to_dict(), planning.inputs(found)))
    assert {layer.linear("q").weight.dtype for layer in loaded.attentions()} == {torch.bfloat16}


def test_rows_come_back_with_a_whole_folder_and_go_without_one(params) -> None:
    job = planned(params())
    row = done(job)
    folder = compressed_models.MODELS / SMALL
    with opened() as out:  # the work folder is whole, the row was lost: the job runs again unless it settled
        compressed_models.keep_or_forget(out, folder, job)
        assert out.missing([job.key]) == [job.key]
        model_folders.publish(folder, job)
        compressed_models.keep_or_forget(out, folder, job)
        assert out.missing([job.key]) == []
    (stored,) = read_rows(Path("data/compression"), "compression").to_pylist()
    assert stored == {**row, "job_key": job.key}
    shutil.rmtree(folder)
    with opened() as out:
        compressed_models.keep_or_forget(out, folder, job)
        assert out.missing([job.key]) == [job.key]


def test_a_job_that_was_stopped_midway_is_no_model_and_leaves_nothing_when_done_again(params) -> None:
    job = planned(params())
    work = model_folders.work_folder(job)
    work.mkdir(parents=True)
    (work / "model.safetensors").write_bytes(b"half")
    (work / "left.txt").write_text("over")
    assert not model_folders.publish(compressed_models.MODELS / SMALL, job)
    done(job)
    assert model_folders.publish(compressed_models.MODELS / SMALL, job)
    assert not (compressed_models.MODELS / SMALL / "left.txt").exists()
    (compressed_models.MODELS / "gone").mkdir()
    model_folders.prune(compressed_models.MODELS, [SMALL])
    assert [path.name for path in compressed_models.MODELS.iterdir()] == [SMALL]


def test_the_same_job_writes_the_same_bytes(params) -> None:
    job = planned(params())
    prints = []
    for _ in range(2):
        done(job)
        prints.append(registry.fingerprint(model_folders.work_folder(job)))
    assert prints[0] == prints[1]


def test_a_cell_of_a_model_that_could_not_be_made_is_left_out(params) -> None:
    made = params(lambda block: block["studies"]["isotropy-layers"].update(datasets=["linear-2"]))
    models = planning.checkpoints(compressed=False)
    models["chronos-bolt-nano"] = models["chronos-t5-nano"]
    asked = [
        planning.cells(made, ["fidelity"], at_hand) for at_hand in (models, models | {SMALL: models["chronos-t5-nano"]})
    ]
    first, second = ({cell.model for cell in cells} for cells in asked)
    assert second - first == {SMALL}


def test_calibration_windows_end_before_what_is_held_out_and_are_those_of_the_seed(params) -> None:
    job = planned(params())
    model, series = load_model(job), compression.read(job)["series"]
    spec = Calibration(**job.spec["calibration"])
    parts = calibration_tokens(model, series, spec)
    assert [len(one) for one in parts] == [3, 3]  # windows, a data set at a time
    assert max(max(one.origin) for one in parts) + spec.horizon <= 0.8 * 1024
    named = {}
    for seed in range(6):
        found = calibration_tokens(model, series, spec.model_copy(update={"seed": seed}))
        named[seed] = tuple(name for one in found for name in one.series)
    assert named[0] == tuple(name for one in parts for name in one.series)
    assert len(set(named.values())) > 1
    why = r"give no window before the last 20% .*: too short for 16 steps of context and a horizon of 900 \(8 series\)"
    with pytest.raises(DataError, match=why):
        calibration_tokens(model, series, spec.model_copy(update={"horizon": 900}))


def test_series_too_short_or_without_values_are_passed_over_until_there_are_as_many_windows_as_asked_for(
    params,
) -> None:
    """Two in forty long enough, where three windows are asked for: none may depend on which are drawn first."""
    job = planned(params())
    model, spec = load_model(job), Calibration(**job.spec["calibration"] | {"datasets": ["mine"]})
    long = kernelsynth_series(40, 3)
    kept = {long[7].series, long[31].series}
    short = [
        one if one.series in kept else replace(one, values=one.values[: 20 * (n % 3)]) for n, one in enumerate(long)
    ]
    for seed in range(8):
        (windows,) = calibration_windows(model, {"mine": series_table(short)}, spec.model_copy(update={"seed": seed}))
        assert len(windows) == spec.windows == 3
        assert set(windows.series) == kept


def test_where_every_series_is_long_enough_the_draw_is_the_first_of_the_permutation(params) -> None:
    job = planned(params())
    model, spec = load_model(job), Calibration(**job.spec["calibration"] | {"datasets": ["mine"]})
    rows = kernelsynth_series(40, 3)
    for seed in range(4):
        (windows,) = calibration_windows(model, {"mine": series_table(rows)}, spec.model_copy(update={"seed": seed}))
        drawn = np.random.default_rng(seed).permutation(40)[:3]
        assert list(windows.series) == [rows[index].series for index in sorted(drawn)]


def test_what_a_folder_says_of_its_making_is_the_spec_of_its_job(params) -> None:
    job = planned(params())
    done(job)
    said = json.loads((model_folders.work_folder(job) / model_folders.RECIPE).read_text())
    assert (said["key"], said["recipe"]) == (job.key, dict(job.spec))
    places = {(part["stack"], part["layer"], part["attention"], part["part"]) for part in said["parts"]}
    assert len(places) == len(said["parts"]) == 2 * (4 + 2 * 4)  # parts, layers of self- and cross-attention


def test_models_of_text_are_held_against_their_base_and_forecast_nothing(params) -> None:
    def text(block: dict[str, Any]) -> None:
        block["models"]["t5-text-nano"] = {
            "family": "t5-text",
            "ref": str(ROOT / "tsfmscope" / "checkpoints" / "t5-text-nano"),
        }
        block["datasets"]["sets"]["english"] = {}
        block["conditions"]["text"] = {"context": 64, "modality": "text"}
        block["studies"]["isotropy-layers"] |= {
            "measures": ["forecasts", "fidelity"],
            "models": ["t5-text-nano", "t5-text-nano@joint-0.5"],
            "datasets": ["english"],
            "conditions": ["text"],
        }

    made = params(text)
    write_parquet(Path("data/datasets/series/english.parquet"), series_table(kernelsynth_series(1, 0)))
    row = planning.checkpoints()["chronos-t5-nano"] | {"family": "t5-text", "modality": "text"}
    names = ("t5-text-nano", "t5-text-nano@joint-0.5")
    models = {name: row | {"model": name} for name in names}
    write_rows(Path("data/checkpoints/checkpoints/00000.parquet"), "checkpoints", models.values())
    assert {cell.model for cell in planning.cells(made, ["fidelity"], models)} == set(names)
    assert [one.job.spec["model"] for one in compression._fidelity(made, models)] == ["t5-text-nano@joint-0.5"]
    assert "english" not in {one.job.spec["dataset"] for one in forecasts.plan(made)}
