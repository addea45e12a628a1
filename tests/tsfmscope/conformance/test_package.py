"""States and forecasts of small random checkpoints against the families' own packages; differences are found."""

from __future__ import annotations

import importlib
import importlib.util
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.tsfmscope.models.families import CLASSES, example_model, hard_windows, shake
from tsfmscope.conformance.checkpoints import Checkpoint
from tsfmscope.conformance.package import (
    CLOSE,
    compare_with_package,
    forecasts_are_those_of_the_package,
    states_are_those_of_the_package,
)
from tsfmscope.conformance.subject import Finding, Subject, judge, states_of

CHECKS = (states_are_those_of_the_package, forecasts_are_those_of_the_package)
NETWORKS = {name: cls.package.network for name, cls in CLASSES.items() if cls.package and cls.package.network}
INSTALLED = [name for name, one in NETWORKS.items() if importlib.util.find_spec(re.split(r"[.:]", one)[0])]
ABSENT = [name for name in NETWORKS if name not in INSTALLED]
# Families whose package draws samples.
SAMPLED = {"moirai"}


FLOWSTATE = {"mlp_type": "gated", "out_gating": False}
R1_1 = {"mlp_type": "transformer", "out_gating": True}
TTM = {"context_length": 52, "d_model": 24, "adaptive_patching_levels": 0, "decoder_adaptive_patching_levels": 0}
TTM_R1 = TTM | {"adaptive_patching_levels": 3, "decoder_d_model": 16, "decoder_num_layers": 2}
PATCHTST = {"context_length": 50, "num_hidden_layers": 2}
# Changes of the example, contexts and horizons, and rows of `hard_windows`: all that the package can be given.
SHAPES: dict[str, tuple[list[dict[str, Any]], list[tuple[int, int]], list[int]]] = {
    "chronos-t5": ([{}], [(48, 12), (60, 5)], [0, 1, 2, 3, 4, 5, 6]),
    "chronos-bolt": ([{}, {"use_reg_token": False}], [(60, 5), (60, 12)], [0, 1, 2, 3, 4, 5]),
    "chronos-2": ([{}, {"use_arcsinh": False}], [(48, 12), (61, 8), (21, 16)], [0, 1, 2, 3, 4, 5]),
    # A horizon of less than a patch, a patch, several whole ones, and several with a rest.
    "flowstate": (
        [
            FLOWSTATE,
            R1_1,
            R1_1 | {"scale_factor": 0.25, "encoder_state_dim": 20, "encoder_num_hippo_blocks": 1},
            FLOWSTATE | {"scale_factor": 24 / 7, "decoder_type": "hlegs"},
            FLOWSTATE | {"scale_factor": 0.0656, "out_gating": True},
            R1_1 | {"decoder_type": "four", "decoder_dim": 7, "quantiles": [0.05, 0.5, 0.8]},
            # One quantile, one layer, one state per HiPPO block.
            {"quantiles": [0.5], "encoder_num_layers": 1, "encoder_num_hippo_blocks": 12, "decoder_dim": 1},
            R1_1 | {"base_season": 8},
        ],
        [(48, 4), (30, 8), (48, 16), (48, 30), (90, 30)],
        [1, 4, 6, 7, 8],
    ),
    "moirai": (
        [{"patch_sizes": [8, 16, 32], "patch_size": size} for size in (8, 16, 32)], [(48, 12), (50, 16), (100, 40)],
        [0, 1, 2, 3, 4, 5, 6],
    ),
    "moment": (
        [
            {"seq_len": 96},
            {"seq_len": 96, "patch_len": 12, "feed_forward_proj": "relu", "value_embedding_bias": True},
            {"seq_len": 96, "add_positional_embedding": False, "relative_attention_num_buckets": 8,
             "relative_attention_max_distance": 6},
        ],
        [(30, 5), (64, 40), (150, 12), (70, 26), (96, 48)],
        [0, 1, 5, 6],
    ),
    "patchtst": (
        [
            PATCHTST,
            PATCHTST | {"norm_type": "layernorm", "pre_norm": False},
            PATCHTST | {"use_cls_token": True},
            PATCHTST | {"pooling_type": "mean"},
            PATCHTST | {"distribution_output": "normal"},
            PATCHTST | {"loss": "mse"},
            PATCHTST | {"scaling": "mean"},
            PATCHTST | {"scaling": None},
        ],
        [(20, 5), (50, 12), (70, 12)],
        [0, 1, 3, 4, 5, 6],
    ),
    "patchtst-fm": (
        # 99 quantiles are those of r1; of 20, the outermost are no neighbours of the others.
        [{"context_length": 96}, {"context_length": 96, "num_quantile": 99},
         {"context_length": 96, "num_quantile": 20, "d_patch": 12}, {"context_length": 96, "pretrain_mask_cont": 3}],
        [(30, 5), (64, 40), (150, 12), (70, 26)],
        [0, 1, 3, 4, 5, 6],
    ),
    # 52 steps are six patches and four steps that no patch reads.
    "ttm": (
        [
            TTM,
            TTM_R1,
            TTM_R1 | {"resolution_prefix_tuning": True, "frequency_token_vocab_size": 10, "decoder_raw_residual": True},
            TTM | {"decoder_d_model": 24, "decoder_adaptive_patching_levels": 2, "gated_attn": False},
            TTM | {"use_decoder": False, "expansion_factor": 3},
            # One patch: coarse layers mix features alone. Parts of four features or fewer are not cut.
            TTM | {"patch_length": 30, "patch_stride": 30, "adaptive_patching_levels": 2},
            TTM | {"d_model": 16, "adaptive_patching_levels": 4},
        ],
        [(52, 12)],
        [1, 5, 6],
    ),
}  # fmt: skip
SHAPED = [(name, config) for name, (configs, _, _) in SHAPES.items() if name in INSTALLED for config in configs]


def checkpoint_of(family: str, tmp_path: Path, horizon: int = 12) -> Checkpoint:
    folder = tmp_path / "model"
    example_model(family).save(folder)
    return Checkpoint(family, folder, tmp_path, 48, horizon)


def compare(checkpoint: Checkpoint) -> list[Finding]:
    return [judge(check, checkpoint) for check in CHECKS]


@pytest.mark.parametrize("family", INSTALLED)
def test_a_checkpoint_has_the_states_and_forecasts_of_the_package(family: str, tmp_path: Path) -> None:
    """The horizon is longer than what most of these models forecast at once."""
    states, forecasts = compare(checkpoint_of(family, tmp_path, horizon=30))
    assert states.verdict == "pass", states.detail
    assert forecasts.verdict == ("not applicable" if family in SAMPLED else "pass"), forecasts.detail


@pytest.mark.parametrize(("family", "config"), SHAPED, ids=str)
def test_every_shape_has_the_states_and_forecasts_of_the_package(
    family: str, config: dict[str, Any], tmp_path: Path
) -> None:
    """Windows have gaps, padding, constants and high levels; vectors of the weights are drawn."""
    model = shake(CLASSES[family].new({**CLASSES[family].example, **config}, seed=2))
    model.save(tmp_path)
    _, lengths, rows = SHAPES[family]
    for context, horizon in lengths:
        made = hard_windows(Subject(family, model, None, tmp_path, context, horizon).windows(9)).take(np.array(rows))
        if family == "flowstate":
            made = replace(made, future=made.future[:, : model._longest(model._factor(made.season))])
        compared = compare_with_package(model, tmp_path, made)
        assert set(compared.states) == set(states_of(model, model.tokenize(made)))
        assert max(compared.state_distances().values()) <= CLOSE
        assert family in SAMPLED or compared.forecast_distance() <= CLOSE


@pytest.mark.parametrize("family", INSTALLED)
def test_folders_pass_to_the_package_and_back(family: str, tmp_path: Path) -> None:
    """The package reads every tensor of a folder that the family wrote, and the family those of the package."""
    model, package = example_model(family), CLASSES[family].package
    assert package is not None and package.network is not None
    model.save(tmp_path / "ours")
    module, _, name = package.network.partition(":")
    options = {"model_kwargs": {"task_name": "reconstruction"}} if family == "moment" else {}
    network = getattr(importlib.import_module(module), name).from_pretrained(str(tmp_path / "ours"), **options)
    network.save_pretrained(str(tmp_path / "theirs"))
    loaded = CLASSES[family].load(tmp_path / "theirs")
    ours, theirs = (one.network.state_dict() for one in (model, loaded))
    assert set(ours) == set(theirs) and all(torch.equal(theirs[key], values) for key, values in ours.items())


def test_a_package_prints_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """momentfm prints how it loads weights."""
    pytest.importorskip("momentfm")
    compare(checkpoint_of("moment", tmp_path))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("family", INSTALLED)
def test_one_changed_weight_is_found_in_states_and_forecasts(family: str, tmp_path: Path) -> None:
    checkpoint = checkpoint_of(family, tmp_path)
    model = checkpoint.subject.model
    last = [weight for weight in model.weights() if weight.stack == model.stacks[-1]][-1]
    with torch.no_grad():
        last.linear.weight += 0.05 * torch.randn(last.linear.weight.shape, generator=torch.Generator().manual_seed(0))
    states, forecasts = compare(checkpoint)
    assert states.verdict == "fail" and "differ by" in states.detail
    assert forecasts.verdict == ("not applicable" if family in SAMPLED else "fail"), forecasts.detail


@pytest.mark.parametrize("family", ["lag-llama", "totem", "visionts", *ABSENT])
def test_without_a_package_the_reason_is_given(family: str, tmp_path: Path) -> None:
    for finding in compare(checkpoint_of(family, tmp_path)):
        assert finding.verdict == "not applicable"
        assert ("install it to compare" if family in NETWORKS else "no package here to compare with") in finding.detail


def test_a_family_that_cannot_run_its_package_is_told_what_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(CLASSES["chronos-2"], "forecast_with_package")
    for finding in compare(checkpoint_of("chronos-2", tmp_path)):
        assert finding.verdict == "fail"
        assert "family chronos-2: `package` names a network, but forecast_with_package is not written" in finding.detail
