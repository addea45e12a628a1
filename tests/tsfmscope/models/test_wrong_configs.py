"""Configs that a family cannot use: `new` raises a ValueError and `load` a ModelError that names what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.tsfmscope.models.families import CLASSES, change_config, example_model
from tsfmscope.errors import ModelError

EVIL = {"_target_": "uni2ts.distribution._base.torch.load", "f": "weights.bin"}
MIXTURE = {"_target_": "uni2ts.distribution.MixtureOutput", "components": [EVIL]}
# Changes of the example's config, and the words of the error.
WAVETOKEN: list[tuple[dict[str, Any], str]] = [
    ({"wavelet": "bior9.9"}, "got wavelet 'bior9.9', expected a discrete one of PyWavelets"),
    ({"wavelet": "db4", "prediction_length": 16}, "wavelet 'db4': .* do not give the series back"),
    ({"threshold": "soft"}, r"got threshold 'soft', expected one of \['none', 'universal'\]"),
    ({"context_length": 15}, r"got context_length 15, expected a multiple of 2\^levels = 2"),
    ({"levels": 3}, r"got prediction_length 12, expected a multiple of 2\^levels = 8"),
]
NEW: dict[str, list[tuple[dict[str, Any], str]]] = {
    "totem": [
        ({"context_length": 22}, "got context_length 22, expected a multiple of 4"),
        ({"context_length": 0}, "got context_length 0"),
        ({"num_attention_heads": 3}, "got d_model 16 and num_attention_heads 3"),
        ({"d_model": 9, "num_attention_heads": 3}, "expected an even width that the heads divide"),
    ],
    "patchtst": [
        ({"distribution_output": "negative_binomial"}, "patchtst config: got distribution_output 'negative_b")
    ],
    "patchtst-fm": [
        ({"d_patch": 0}, "d_patch: got 0, expected a whole number from 1"),
        ({"n_layer": 2.0}, "n_layer: got 2.0"),
        ({"n_head": 3}, "d_model: got 16, expected a multiple of n_head 3"),
        ({"context_length": 70}, "context_length: got 70, expected a multiple of d_patch 8 from 24"),
        ({"pretrain_mask_cont": 9}, "context_length: got 72, expected a multiple of d_patch 8 from 80"),
        ({"num_quantile": 200}, "num_quantile: got 200, expected 9, 99 or another number whose levels ascend"),
        ({"dropout": 1.0}, "dropout: got 1.0, expected a number from 0, below 1"),
        ({"pretrain_mask_ratio": "x"}, "pretrain_mask_ratio: got 'x'"),
    ],
    "toto-2": [
        ({"patch_size": 0}, "patch_size: got 0, expected a whole number from 1"),
        ({"d_model": 15}, "d_model: got 15, expected a multiple of num_heads 2"),
        ({"num_layers": 5}, "num_layers: got 5, expected a multiple of layer_group_size 2"),
        ({"num_variate_layers_per_group": 3}, "got 3, expected a whole number from 0 to layer_group_size 2"),
        ({"variate_layer_first": 1}, "variate_layer_first: got 1, expected true or false"),
        ({"num_heads": 4, "num_groups": 3}, "num_groups: got 3, expected a divisor of 4 heads"),
        ({"qk_dim": 6}, "qk_dim: got 6, expected a multiple of 4"),
        ({"residual_attn_ratio": None}, "residual_attn_ratio: got None, expected a number above 0"),
        ({"norm_eps": float("nan")}, "norm_eps: got nan"),
        ({"d_ff": "x"}, "d_ff: got 'x'"),
    ],
    "flowstate": [
        ({"encoder_num_layers": 0}, "encoder_num_layers: got 0, expected a whole number from 1 to 65536"),
        (
            {"encoder_num_hippo_blocks": 5},
            "encoder_state_dim: got 12, expected a multiple of encoder_num_hippo_blocks 5",
        ),
        ({"scale_factor": 0}, "scale_factor: got 0, expected a number above 0"),
        ({"base_season": "day"}, "base_season: got 'day', expected a number above 0"),
        ({"base_season": 17}, "got a scale factor of 8.5 for the shortest season, expected at most 8, so that a step"),
        ({"out_gating": 1}, "out_gating: got 1, expected true or false"),
        ({"mlp_type": "swiglu"}, r"mlp_type: got 'swiglu', expected one of \['gated', 'transformer'\]"),
        ({"decoder_type": "four"}, "decoder_dim: got 6, expected an odd number, since decoder_type is 'four'"),
        ({"quantiles": []}, r"quantiles: got \[\], expected a list of numbers"),
        ({"quantiles": [0.5, 0.1]}, "expected ascending numbers between 0 and 1"),
        ({"quantiles": [0.5, 1.0]}, "expected ascending numbers between 0 and 1"),
    ],
    "ttm": [
        ({"num_layers": 0}, "num_layers: got 0, expected a whole number from 1 to 65536"),
        ({"patch_stride": 4}, "got patch_stride 4, expected patch_length 8: patches do not overlap"),
        ({"context_length": 8}, "got context_length 8 and patch_length 8, expected a context longer than a patch"),
        ({"d_model": 15}, "got adaptive_patching_levels 2 and d_model 15, expected a multiple of 2"),
        ({"gated_attn": 1}, "gated_attn: got 1, expected true or false"),
        ({"dropout": 1.0}, "dropout: got 1.0, expected a number from 0, below 1"),
        ({"prediction_filter_length": 13}, "got prediction_filter_length 13, expected null or 1 to prediction_length"),
        ({"loss": "nll"}, "got loss 'nll', expected one of"),
    ],
    "moment": [
        ({"num_layers": 0}, "num_layers: got 0, expected a whole number from 1 to 65536"),
        ({"seq_len": 70}, "got seq_len 70, expected a multiple of patch_len 8 from 16"),
        ({"seq_len": 8}, "got seq_len 8, expected a multiple of patch_len 8 from 16"),
        ({"d_model": 15}, "got d_model 15, expected an even number"),
        ({"mask_ratio": 1.0}, "mask_ratio: got 1.0, expected a number from 0, below 1"),
        ({"value_embedding_bias": 1}, "value_embedding_bias: got 1, expected true or false"),
        ({"layer_norm_epsilon": 0}, "layer_norm_epsilon: got 0, expected a number above 0"),
        ({"feed_forward_proj": "swiglu"}, "got feed_forward_proj 'swiglu', expected one of"),
        ({"relative_attention_num_buckets": 6}, "got relative_attention_num_buckets 6 .* expected a multiple of 4"),
        ({"relative_attention_max_distance": 8}, "relative_attention_max_distance 8, .* more than a quarter of it"),
    ],
    "vit": [({"image_size": 9}, "image_size: got 9, expected whole patches of 2 pixels")],
    "t5-text": [({"vocab_size": 258}, "vocab_size: got 258, expected at least 259")],
    "time-moe": [
        ({"hidden_size": 12, "num_attention_heads": 4}, "no even width"),
        ({"horizon_lengths": [8, 1]}, "ascending"),
        ({"horizon_lengths": []}, "ascending"),
        ({"horizon_lengths": [0]}, "whole number"),
        ({"num_experts_per_tok": 6}, "num_experts_per_tok"),
        ({"num_hidden_layers": 2.0}, "whole number"),
    ],
    "timesfm": [({"context_length": 50}, "context_length 50, expected a multiple of patch_length 8")],
    "timesfm-2.5": [
        ({"context_length": 50}, "context_length 50, expected a multiple of patch_length 8"),
        ({"output_quantile_len": 11}, "output_quantile_len 11, expected at least horizon_length 12"),
        ({"decode_index": 4}, "decode_index 4 of 9 quantiles, expected the middle one"),
    ],
    "visionts": [
        ({"hidden_size": 18}, "hidden_size 18"),
        ({"image_size": 4}, "image_size 4"),
        ({"periodicity": 1.5}, "1.5"),
    ],
    "wavetoken": WAVETOKEN,
    "lag-llama": [
        ({"n_layer": 0}, "n_layer: got 0, expected a whole number from 1 to 4096"),
        ({"n_head": True}, "n_head: got True"),
        ({"n_embd_per_head": 5}, "n_embd_per_head: got 5, expected an even number"),
        ({"tokens": 0}, "tokens: got 0"),
        ({"lags": []}, r"lags: got \[\], expected ascending whole numbers"),
        ({"lags": [1, 1]}, r"lags: got \[1, 1\]"),
        ({"lags": [0, 5000]}, r"lags: got \[0, 5000\]"),
        ({"lags": "all"}, "lags: got 'all', expected a list"),
        ({"rope_scaling": "dynamic"}, r"rope_scaling: got 'dynamic', expected one of \[None, 'linear'\]"),
        ({"missing": "mean"}, r"missing: got 'mean', expected one of \['zero', 'median'\]"),
    ],
    "moirai": [
        ({"d_model": 102}, "got d_model 102, expected a multiple of 64"),
        ({"patch_sizes": [0, 8]}, r"got patch_sizes \[0, 8\]"),
        ({"patch_size": 5}, "got patch_size 5"),
    ],
    "moirai-2": [
        ({"d_model": 102}, "got d_model 102, expected a multiple of 64"),
        ({"patch_size": 0}, "got patch_size 0, expected a whole number from 1"),
        ({"num_layers": 1.5}, "got num_layers 1.5"),
        ({"scaling": "no"}, "got scaling 'no', expected true or false"),
        ({"dropout_p": "x"}, "got dropout_p 'x', expected a number from 0 to below 1"),
        ({"quantile_levels": []}, r"got quantile_levels \[\], expected ascending numbers"),
        ({"quantile_levels": [0.5, 0.1]}, "expected ascending numbers"),
        ({"quantile_levels": [0.5, 1.0]}, "expected numbers between 0 and 1"),
    ],
}
# Changes of a saved config.json; a block in it is changed by key.
SAVED: dict[str, list[tuple[dict[str, Any], str]]] = {
    "chronos-2": [
        (
            {"chronos_config": {"use_reg_token": False}},
            "got use_reg_token False, expected true: chronos-forecasting runs no other",
        )
    ],
    "flowstate": [
        ({"with_missing": False}, "got {'with_missing': False}, expected {'with_missing': True} as in r1 and r1.1"),
        ({"architectures": ["FlowStateForAnomalies"]}, "other classes are not read"),
        ({"model_type": "flowstate_2"}, "so this is no flowstate checkpoint"),
        ({"decoder_type": "wavelet"}, "decoder_type: got 'wavelet', expected one of .*; fetch or save"),
        ({"encoder_num_layers": 4}, "weights do not fit config.json: missing .*encoder.layers.3"),
        ({"mlp_type": "gated"}, "weights do not fit config.json: missing .*out.bias.*not known .*mlp"),
        ({"out_gating": False}, "not known .*output_gate"),
        ({"decoder_dim": 7}, "weights do not fit config.json.*another shape"),
    ],
    "moment": [
        ({"t5_config": 1}, "got t5_config 1, expected an object, so this is no moment checkpoint"),
        ({"task_name": "forecasting"}, "'forecasting'.* as in MOMENT-1; other versions are not supported"),
        ({"transformer_type": "encoder_decoder", "revin_affine": True}, "'revin_affine': True.*as in MOMENT-1"),
        ({"patch_stride_len": 4}, "got patch_stride_len 4, expected 8 or null"),
        ({"d_model": 32}, "got d_model 32, expected 16 or null"),
        ({"t5_config": {"num_layers": 4}}, "weights do not fit config.json: missing .*block.3"),
        ({"t5_config": {"d_ff": 32}}, "weights do not fit config.json.*another shape"),
        ({"t5_config": {"d_kv": "6"}}, "d_kv: got '6', expected a whole number from 1"),
    ],
    "patchtst-fm": [
        ({"mlp_type": "swiglu"}, "got {'mlp_type': 'swiglu'}, expected {'mlp_type': 'mlp'} as in r1"),
        ({"block_type": "conformer", "prehead_norm": True}, "block_type.*other versions are not supported"),
        ({"model_type": "patchtst"}, "so this is no patchtst-fm checkpoint"),
        ({"n_layer": 4}, "weights do not fit config.json: missing .*blocks.3"),
        ({"d_model": 32}, "weights do not fit config.json.*another shape"),
        ({"quantile_levels": [0.5]}, r"got quantile_levels \[0.5\], expected those of num_quantile 9"),
    ],
    "t5-text": [
        ({"vocab_size": 32128}, "got 32128 ids and no tokenizer, expected tokenizer.json"),
        ({"vocab_size": 100}, "got 100 ids and no tokenizer"),
        ({"chronos_config": {}}, "got model_type 't5', chronos_config, expected 't5' of text"),
        ({"model_type": "bart"}, "got model_type 'bart', expected 't5' of text"),
    ],
    "tabular": [
        ({"task": "REGRESSION"}, "got task 'REGRESSION' .* or take a classifier"),
        ({"n_heads": 3}, "dim: got 16, expected a multiple of n_heads 3"),
        ({"dim": "16"}, "dim: got '16', expected a whole number"),
    ],
    "time-moe": [
        ({"use_dense": True}, "got {'use_dense': True}, expected {'use_dense': False} as in every release"),
        ({"num_key_value_heads": 1}, "num_key_value_heads"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"model_type": "mixtral"}, "so this is no time-moe checkpoint"),
        ({"num_experts": 0}, "num_experts: got 0"),
        ({"num_experts": 6}, "missing .*experts.5"),
    ],
    "toto-2": [
        ({"num_output_patches": 2}, "got {'num_output_patches': 2}, expected {'num_output_patches': 1}"),
        ({"dropout_p": 0.1, "pre_norm": False}, "dropout_p.*other versions are not supported"),
        ({"model_type": "toto"}, "so this is no toto-2 checkpoint"),
        ({"num_layers": 6}, "weights do not fit config.json: missing .*layers.4"),
        ({"qk_norm": True, "qk_norm_include_weight": True}, "missing .*k_norm.weight"),
        ({"per_dim_scale": False}, "not known .*per_dim_scale"),
        ({"num_groups": 1}, "weights do not fit config.json"),
        ({"residual_mult": "x"}, "residual_mult: got 'x', expected a number above 0, at most 65536; fetch or save"),
    ],
    "ttm": [
        (
            {"mode": "mix_channel"},
            "got {'mode': 'mix_channel'}, expected {'mode': 'common_channel'} as in TTM R1 and R2",
        ),
        ({"self_attn": True}, "'self_attn': True.*other versions are not supported"),
        ({"multi_quantile_head": True, "register_tokens": 2}, "'register_tokens': 2.*as in TTM R1 and R2"),
        ({"decompose": True}, "other versions are not supported"),
        ({"scaling": "mean"}, "got scaling 'mean', expected 'std'"),
        ({"architectures": ["TinyTimeMixerForMaskedPrediction"]}, "only forecasters are read"),
        ({"model_type": "patchtsmixer"}, "so this is no ttm checkpoint"),
        ({"resolution_prefix_tuning": True}, "weights do not fit config.json: missing .*freq_mod"),
        ({"use_decoder": False}, "weights do not fit config.json"),
    ],
    "visionts": [
        ({"norm_pix_loss": True}, "got norm_pix_loss true, expected a model that reconstructs pixels"),
        ({"model_type": "vit"}, "so this is no visionts checkpoint"),
        ({"architectures": ["ViTMAEModel"]}, "so this is no visionts checkpoint"),
        ({"image_size": 30}, "expected a square of 2 x 2 whole patches"),
        ({"periodicity": 0}, "got periodicity 0"),
    ],
    "wavetoken": [({"wavetoken_config": changes}, text) for changes, text in WAVETOKEN],
    "moirai": [
        ({"distr_output": EVIL}, "got _target_ 'uni2ts.distribution._base.torch.load', expected"),
        ({"distr_output": {"_target_": "os.system", "command": "true"}}, "got _target_ 'os.system'"),
        ({"distr_output": MIXTURE}, "torch.load"),
        ({"distr_output": {"_target_": "uni2ts.distribution.StudentTOutput", "df": 3}}, "unknown option 'df'"),
        ({"distr_output": None}, "got _target_ None"),
        ({"d_model": 40}, "got d_model 40, expected a multiple of 64"),
        ({"d_model": 192}, "weights do not fit config.json.*another shape"),
        ({"num_layers": 4}, "weights do not fit config.json: missing .*encoder.layers.3"),
        ({"patch_sizes": []}, r"got patch_sizes \[\]"),
        ({"patch_size": 64}, "got patch_size 64, expected one of patch_sizes"),
    ],
    "moirai-2": [
        ({"d_ff": 32}, "weights do not fit config.json.*another shape"),
        ({"num_predict_token": 3}, "weights do not fit config.json.*another shape"),
        ({"max_seq_len": 10**9}, "got max_seq_len 1000000000, expected a whole number from 1 to 65536"),
    ],
}


def rows(table: dict[str, list[tuple[dict[str, Any], str]]]) -> list[tuple[str, dict[str, Any], str]]:
    return [(name, *row) for name, cases in table.items() for row in cases]


@pytest.mark.parametrize("name", CLASSES)
def test_a_config_without_a_key_is_named(name: str) -> None:
    first = next(iter(CLASSES[name].example))
    with pytest.raises(ValueError, match=rf"keys \['{first}'"):
        CLASSES[name].new({key: value for key, value in CLASSES[name].example.items() if key != first}, seed=0)


@pytest.mark.parametrize(("name", "changes", "text"), rows(NEW))
def test_a_config_that_a_new_model_cannot_have_is_named(name: str, changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        CLASSES[name].new({**CLASSES[name].example, **changes}, seed=0)


@pytest.mark.parametrize(("name", "changes", "text"), rows(SAVED))
def test_a_config_that_a_checkpoint_cannot_have_is_named(
    name: str, changes: dict[str, Any], text: str, tmp_path: Path
) -> None:
    example_model(name).save(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    named = ("chronos_config", "t5_config", "wavetoken_config")
    blocks = [key for key in named if isinstance(changes.get(key), dict) and key in config]
    change_config(tmp_path, **changes | {key: config[key] | changes[key] for key in blocks})
    with pytest.raises(ModelError, match=text):
        CLASSES[name].load(tmp_path)
