"""Pretraining is seeded, logged and goes on after a kill as if there had been none."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from contextvars import copy_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tasks.job import WATCHER, Job, Task
from tasks.pretraining import pretrain
from tsfmscope.defaults import HELD_OUT
from tsfmscope.models import registry
from tsfmscope.models.registry import family_class
from tsfmscope.series.calendar import start_of, step_dates
from tsfmscope.series.files.sources import BUNDLED, load_bundled
from tsfmscope.series.synthetic.kernelsynth import draw_many
from tsfmscope.training import pretraining
from tsfmscope.training.corpora import BatchShape, Corpus
from tsfmscope.training.held_out import SEED_OFFSET, unseen_windows
from tsfmscope.training.pretraining import RUN_RECORD, Average, processor_name

SHAPE = {"d_model": 16, "d_ff": 16, "d_kv": 8, "num_heads": 2, "num_layers": 1, "num_decoder_layers": 1}
COMMON = {"context_length": 64, "prediction_length": 16, "dropout_rate": 0.1}
CONFIGS = {
    "chronos-t5": {**SHAPE, **COMMON, "n_tokens": 64},
    "chronos-bolt": {**SHAPE, **COMMON, "input_patch_size": 16, "input_patch_stride": 16},
    "patchtst": {
        "d_model": 16, "ffn_dim": 16, "num_attention_heads": 2, "num_hidden_layers": 1, "context_length": 64,
        "prediction_length": 16, "ff_dropout": 0.1,
    },
    "lag-llama": {"context_length": 16, "n_layer": 1, "n_head": 2, "n_embd_per_head": 8, "lags": [0, 1, 7]},
    "totem": {
        "d_model": 16, "ffn_dim": 16, "num_attention_heads": 2, "num_hidden_layers": 1, "context_length": 64,
        "prediction_length": 16, "conv_width": 8, "dropout": 0.1,
    },
}  # fmt: skip
MIXTURE = {"kernelsynth": 0.4, "tsmixup": 0.4, "bundled": 0.2}


def job(family: str, **changes: Any) -> Job:
    recipe = {
        "family": family, "config": CONFIGS[family], "steps": 6, "batch_steps": 320, "learning_rate": 0.01,
        "weight_decay": 0.0, "warm_up": 2, "contexts": [32, 64], "horizon": 16, "futures": [4, 16], "min_past": 8,
        "mixture": MIXTURE, "pool": 4, "length": 256, "seed": 0, "log_every": 2, "save_every": 2,
    }  # fmt: skip
    return Job(Task("pretrain", 1, "tasks.pretraining:pretrain"), {"model": "m", "recipe": recipe | changes})


def weights(folder: Path, family: str) -> Mapping[str, torch.Tensor]:
    state: Mapping[str, torch.Tensor] = family_class(family).load(folder).network.state_dict()
    return state


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        *((family, {}) for family in sorted(CONFIGS)),
        ("chronos-t5", {"heads": {"flow": {"first": 1.0, "growth": 1.0}, "factors": "shared"}}),
        ("chronos-bolt", {"mixture": {"priors": 1.0}, "schedule": "cosine", "averaging": 0.9, "snapshots": [0, 3],
            "phases": [{"until": 3, "batch_steps": 160, "mixture": {"periodic": 1.0}, "periods": None}]}),
    ],
)  # fmt: skip
def test_a_killed_training_goes_on_and_ends_as_an_unbroken_one(
    family: str, changes: dict[str, Any], tmp_path: Path, dies_at: Any
) -> None:
    asked = job(family, **changes)
    whole = pretrain(asked, tmp_path / "whole", None)
    with dies_at(5):
        pretrain(asked, tmp_path / "broken", None)
    assert not (tmp_path / "broken" / "recipe.json").exists()  # not whole, and says so
    resumed = pretrain(asked, tmp_path / "broken", None)
    assert resumed.rows == whole.rows
    assert resumed.tokens < whole.tokens  # of this run alone, as its seconds are
    assert run_record(tmp_path / "broken")["n_values"] == whole.tokens == run_record(tmp_path / "whole")["n_values"]
    assert [row["step"] for row in whole.rows] == [2, 4, 6]
    first, second = weights(tmp_path / "whole", family), weights(tmp_path / "broken", family)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_the_record_adds_up_the_runs_and_states_of_earlier_versions_have_none(tmp_path: Path, dies_at: Any) -> None:
    one = job("chronos-bolt")
    for name in ("new", "old"):
        with dies_at(5):
            pretrain(one, tmp_path / name, None)
    state = torch.load(tmp_path / "new" / "state.pt", weights_only=True)
    assert state["run"]["seconds"] > 0 and state["run"]["torch_versions"] == (torch.__version__,)
    state["run"] |= {"seconds": 1e6, "processors": ("former",), "torch_versions": ("1.0",)}
    torch.save(state, tmp_path / "new" / "state.pt")
    del state["run"]
    torch.save(state, tmp_path / "old" / "state.pt")
    for name in ("new", "old"):
        pretrain(one, tmp_path / name, None)
    new, old = run_record(tmp_path / "new"), run_record(tmp_path / "old")
    assert 1e6 < new["seconds"] < 1e6 + 600
    assert new["processors"] == ["former", processor_name("cpu")] and new["torch_versions"] == [
        "1.0",
        torch.__version__,
    ]
    assert old == {
        "n_values": None, "seconds": None, "processors": [processor_name("cpu")], "torch_versions": [torch.__version__]
    }  # fmt: skip


def run_record(folder: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((folder / RUN_RECORD).read_text())
    return record


class Deaf(Exception):
    """Whoever watched was killed."""


def test_a_training_that_goes_on_says_every_saved_step_again(tmp_path: Path) -> None:
    said: list[Mapping[str, Any]] = []

    def watch(row: Mapping[str, Any]) -> None:
        said.append(row)
        if len(said) in (2, 3):  # the second run ends by what it says again
            raise Deaf

    one = job("chronos-bolt", log_every=1)

    def train() -> None:
        WATCHER.set(watch)
        pretrain(one, tmp_path, None)

    for _ in range(2):
        with pytest.raises(Deaf):
            copy_context().run(train)
    copy_context().run(train)
    assert [row["step"] for row in said] == [2, 4, 2, 2, 4, 6]
    assert said[:2] == said[3:5]


def test_a_finished_folder_holds_recipe_log_and_key_and_no_state(tmp_path: Path) -> None:
    one = job("chronos-bolt")
    result = pretrain(one, tmp_path, None)
    assert json.loads((tmp_path / "recipe.json").read_text()) == {"key": one.key, "recipe": one.spec["recipe"]}
    assert json.loads((tmp_path / "training.json").read_text()) == list(result.rows)
    assert {path.name for path in tmp_path.iterdir()} >= {"config.json", "model.safetensors"}
    assert not list(tmp_path.glob("state*"))


def test_training_lowers_the_loss(tmp_path: Path) -> None:
    rows = pretrain(job("chronos-t5", steps=40, batch_steps=1000), tmp_path, None).rows
    assert np.mean([row["loss"] for row in rows[-5:]]) < 0.95 * rows[0]["loss"]


def test_a_loss_that_is_not_finite_stops_with_what_to_mend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    family = family_class("chronos-bolt")
    monkeypatch.setattr(family, "loss", lambda self, context, future: torch.tensor(float("nan")))
    with pytest.raises(FloatingPointError, match="loss at step 1 is nan; lower learning_rate"):
        pretrain(job("chronos-bolt"), tmp_path, None)


def test_a_batch_follows_from_its_step_alone_and_shows_part_of_the_future() -> None:
    corpus = Corpus(pool=4, length=256, mixture=MIXTURE, seed=0)
    shape = BatchShape(steps=320, contexts=[32, 64], futures=[4, 16], horizon=16, min_past=8)
    batches = {step: corpus.batch(step, shape) for step in (9, 3, 7, 5, 1)}
    for step, batch in batches.items():
        context, future = batch.context, batch.future
        again = corpus.batch(step, shape)
        np.testing.assert_array_equal(context, again.context)
        np.testing.assert_array_equal(future, again.future)
        np.testing.assert_array_equal(batch.dates(), again.dates())
        assert len(context) == 320 // (context.shape[1] + 16)
        assert future.shape == (len(context), 16)
    shown = {int((~np.isnan(future)).any(axis=0).sum()) for _, future, *_ in batches.values()}
    assert shown <= {4, 16}
    assert len(shown) == 2


def test_real_windows_of_a_batch_have_their_own_dates_and_synthetic_ones_dates_that_change_no_window() -> None:
    shape = BatchShape(steps=3200, contexts=[64], futures=[16], horizon=16, min_past=8)
    real = Corpus(pool=1, length=64, mixture={"bundled": 1.0}, seed=0)
    values = {name: load_bundled(name) for name in BUNDLED}
    series = [one for name in BUNDLED for one in values[name]]
    batch = real.batch(3, shape)
    for row, (clock, origin) in enumerate(zip(batch.clocks, batch.origins, strict=True)):
        first = max(0, origin - 64)
        own = [one for one in series if (start_of(one.start), one.freq) == clock]
        past = batch.context[row][64 - origin + first :]
        assert any(np.array_equal(one.values[first:origin], past, equal_nan=True) for one in own)
        expected = step_dates(np.array([clock.start]), clock.freq, np.array([origin - 64]), 80)
        np.testing.assert_array_equal(batch.dates()[row], expected[0].astype(np.int64))
    assert len({clock.freq for clock in batch.clocks}) > 2
    mixed = Corpus(pool=4, length=256, mixture={"kernelsynth": 0.5, "tsmixup": 0.5}, seed=0).batch(3, shape)
    assert len({clock.freq for clock in mixed.clocks}) > 5 and len({clock.start for clock in mixed.clocks}) == 40
    padding = np.arange(64)[None, :] < 64 - np.array(mixed.origins)[:, None]
    assert ((mixed.dates()[:, :64] == np.iinfo(np.int64).min) == padding).all()


def test_a_dated_family_trains_on_dates_and_another_on_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[list[np.ndarray]] = []
    step = pretraining._step
    monkeypatch.setattr(pretraining, "_step", lambda *asked: drawn.append(asked[1]) or step(*asked))
    for family in ("chronos-bolt", "lag-llama"):
        pretrain(job(family, steps=1), tmp_path / family, None)
    plain, dated = drawn
    assert len(plain) == 2 and len(dated) == 3
    assert np.array_equal(plain[0], dated[0], equal_nan=True)  # dates change no window
    assert dated[2].shape == (len(dated[0]), dated[0].shape[1] + dated[1].shape[1])


def test_the_corpus_holds_no_step_of_the_bundled_series_that_skill_is_measured_on() -> None:
    corpus = Corpus(pool=1, length=64, mixture=MIXTURE, seed=0)
    series = [one for name in BUNDLED for one in load_bundled(name)]
    windows = {w.dataset: w for w in unseen_windows(20, context=64, seed=0)}
    for one, seen in zip(series, corpus.bundled, strict=True):
        assert len(seen) == int(len(one.values) * (1 - HELD_OUT))
        found = windows[one.dataset]
        origins = [origin for name, origin in zip(found.series, found.origin, strict=True) if name == one.series]
        assert origins
        assert min(origins) >= len(seen)


def test_unseen_series_are_drawn_from_other_seeds_than_the_pool() -> None:
    pool = {drawn.seed for drawn in draw_many(200, 0, 64)}
    unseen = {drawn.seed for drawn in draw_many(200, SEED_OFFSET, 64)}
    assert not pool & unseen


def test_at_least_as_many_unseen_windows_as_asked_for() -> None:
    found = unseen_windows(100, context=64, seed=0)
    assert sum(len(windows) for windows in found) >= 100
    assert {w.dataset for w in found} >= {"kernelsynth", "linear-1", "stochastic-2", *BUNDLED}


def test_weights_are_kept_at_the_steps_asked_for_and_change_nothing(tmp_path: Path) -> None:
    plain = pretrain(job("chronos-t5"), tmp_path / "plain", None)
    kept = pretrain(job("chronos-t5", snapshots=[0, 3, 6]), tmp_path / "kept", None)
    assert kept.rows == plain.rows
    found = registry.snapshots(tmp_path / "kept")
    assert list(found) == [0, 3, 6]
    assert registry.snapshots(tmp_path / "plain") == {}
    states = {step: weights(folder, "chronos-t5") for step, folder in found.items()}
    initial = family_class("chronos-t5").new(CONFIGS["chronos-t5"], seed=0).network.state_dict()
    last = weights(tmp_path / "plain", "chronos-t5")
    assert all(torch.equal(states[0][name], initial[name]) for name in initial)
    assert all(torch.equal(states[6][name], last[name]) for name in last)
    query = "encoder.block.0.layer.0.SelfAttention.q.weight"
    assert not torch.equal(states[3][query], initial[query]) and not torch.equal(states[3][query], last[query])


def test_a_killed_training_keeps_the_weights_of_an_unbroken_one(
    tmp_path: Path, dies_at: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = job("patchtst", snapshots=[0, 2, 3, 5])
    pretrain(one, tmp_path / "whole", None)
    rename = Path.rename

    def dies_after_writing(self: Path, target: Path) -> Path:
        if target.name == "step-5":
            raise KeyboardInterrupt
        return rename(self, target)

    broken = tmp_path / "broken"
    with dies_at(4):
        pretrain(one, broken, None)
    assert list(registry.snapshots(broken)) == [0, 2, 3]
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", dies_after_writing)
        with pytest.raises(KeyboardInterrupt):
            pretrain(one, broken, None)
    assert list(registry.snapshots(broken)) == [0, 2, 3]
    pretrain(one, broken, None)
    first, second = registry.snapshots(tmp_path / "whole"), registry.snapshots(broken)
    assert list(first) == list(second) == [0, 2, 3, 5]
    assert {path.name for path in (broken / "snapshots").iterdir()} == {path.name for path in first.values()}
    for at, folder in first.items():
        assert (folder / "model.safetensors").read_bytes() == (second[at] / "model.safetensors").read_bytes()


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_who_may_read_a_trained_model_and_its_snapshots_is_what_the_umask_says(
    mask: int, mode: int, tmp_path: Path
) -> None:
    former = os.umask(mask)
    try:
        pretrain(job("chronos-bolt", snapshots=[2]), tmp_path, None)
    finally:
        os.umask(former)
    weights = sorted(tmp_path.rglob("*.safetensors"))
    assert [path.parent for path in weights] == [tmp_path, tmp_path / "snapshots" / "step-2"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in weights} == {mode}


def test_the_average_is_the_weighted_sum_of_all_steps() -> None:
    network = torch.nn.Linear(3, 2)
    average, expected = Average(network, 0.9), network.weight.detach().clone()
    for step in range(1, 60):
        with torch.no_grad():
            network.weight.add_(torch.randn(2, 3))
        average.update(step)
        decay = min(0.9, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * network.weight.detach()
    torch.testing.assert_close(average.weights["weight"], expected)
    last = network.weight.detach().clone()
    average.swap()
    torch.testing.assert_close(network.weight.detach(), expected)
    average.swap()
    torch.testing.assert_close(network.weight.detach(), last)


def test_tied_weights_are_averaged_once() -> None:
    network = torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(4, 4, bias=False))
    network[1].weight = network[0].weight
    average, first = Average(network, 0.5), network[0].weight.detach().clone()
    assert len(average.weights) == 1
    with torch.no_grad():
        network[0].weight.add_(1.0)
    average.update(1000)
    average.swap()
    torch.testing.assert_close(network[1].weight.detach(), first + 0.5)


def test_without_a_decay_nothing_changes() -> None:
    network = torch.nn.Linear(3, 2)
    average, kept = Average(network, None), network.weight.detach().clone()
    average.update(1)
    average.swap()
    assert average.weights == {}
    torch.testing.assert_close(network.weight.detach(), kept)
