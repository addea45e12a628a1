"""Small configs of this project's families, for `new`; used by the conformance checks and by tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

Model = TypeVar("Model")

SHAPE: dict[str, float] = {
    "d_model": 16,
    "d_ff": 24,
    "d_kv": 6,
    "num_heads": 3,
    "num_layers": 3,
    "num_decoder_layers": 2,
}
STEPS = {"context_length": 48, "prediction_length": 12}
T5 = {**SHAPE, **STEPS, "n_tokens": 128, "initializer_factor": 1.0}
BOLT = {**SHAPE, **STEPS, "input_patch_size": 8, "input_patch_stride": 8, "initializer_factor": 1.0}
CHRONOS_2 = {key: value for key, value in SHAPE.items() if key != "num_decoder_layers"} | {"context_length": 48}
CHRONOS_2 |= {"input_patch_size": 8, "max_output_patches": 2, "initializer_factor": 0.5}
HEADS = {"num_attention_heads": 2, "num_hidden_layers": 3}
PATCHTST = {"d_model": 16, "ffn_dim": 24, **HEADS, **STEPS, "patch_length": 8, "patch_stride": 4, "init_std": 0.2}
PATCHTST_FM: dict[str, float] = {
    "context_length": 72,
    "d_patch": 8,
    "d_model": 16,
    "n_head": 2,
    "n_layer": 3,
    "num_quantile": 9,
}
PATCHTST_FM |= {"pretrain_mask_cont": 2, "dropout": 0.0}
# A horizon of 12 steps is more than a patch, so that there are masked rows.
FLOWSTATE: dict[str, Any] = {
    "context_length": 60,
    "embedding_feature_dim": 16,
    "encoder_num_layers": 3,
    "encoder_state_dim": 12,
    "encoder_num_hippo_blocks": 2,
    "decoder_patch_len": 8,
    "decoder_dim": 6,
}
FLOWSTATE |= {"mlp_type": "transformer", "out_gating": True}
MOIRAI = {"d_model": 128, "num_layers": 3, "patch_sizes": [8, 16], "patch_size": 8}
MOIRAI_2 = {"d_model": 128, "d_ff": 48, "num_layers": 3, "patch_size": 8, "num_predict_token": 2}
MOMENT = {"seq_len": 72, "patch_len": 8, "d_model": 16, "d_ff": 24, "d_kv": 6, "num_heads": 3, "num_layers": 3}
TOTEM = {"d_model": 16, "ffn_dim": 24, **HEADS, **STEPS, "num_codes": 32, "code_width": 8, "conv_width": 8}
TOTEM |= {"residual_width": 4}
LAG_LLAMA = {"context_length": 48, "n_layer": 3, "n_head": 2, "n_embd_per_head": 8, "lags": (0, 1, 2, 7, 24)}
WIDTHS: dict[str, float] = {"hidden_size": 16, "intermediate_size": 24, "initializer_range": 0.2, **HEADS}
TIMESFM = {**WIDTHS, "head_dim": 6, "patch_length": 8, "context_length": 48, "horizon_length": 12}
TIME_MOE = {**WIDTHS, "num_experts": 4, "horizon_lengths": [1, 8], "max_position_embeddings": 48}
TTM: dict[str, float] = {
    **STEPS,
    "patch_length": 8,
    "patch_stride": 8,
    "d_model": 16,
    "num_layers": 2,
    "adaptive_patching_levels": 2,
}
TTM |= {"decoder_d_model": 12, "decoder_num_layers": 1, "dropout": 0.0, "head_dropout": 0.0}
# The switches of the released sizes, where keys are not normed.
TOTO_2: dict[str, float] = {"patch_size": 8, "d_model": 16, "num_heads": 2, "num_layers": 4, "layer_group_size": 2}
TOTO_2 |= {"num_variate_layers_per_group": 1, "variate_layer_first": False, "residual_attn_ratio": 2.0}
TOTO_2 |= {"d_ff": 24, "attn_bias": True, "qk_norm": False, "per_dim_scale": True, "use_xpos": True}
VISIONTS = {**WIDTHS, "image_size": 80, "patch_size": 4, "periodicity": 7, "decoder_hidden_size": 8}
VISIONTS |= {"decoder_intermediate_size": 12, "decoder_num_hidden_layers": 1, "decoder_num_attention_heads": 2}
VIT = {**WIDTHS, "image_size": 8, "patch_size": 2}
TABULAR = {"dim": 16, "n_layers": 2, "n_heads": 2}

EXAMPLES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "chronos-t5": T5,
        "chronos-bolt": BOLT,
        "chronos-2": CHRONOS_2,
        "flowstate": FLOWSTATE,
        "lag-llama": LAG_LLAMA,
        "moirai": MOIRAI,
        "moirai-2": MOIRAI_2,
        "moment": MOMENT,
        "patchtst": PATCHTST,
        "patchtst-fm": PATCHTST_FM,
        "totem": TOTEM,
        "wavetoken": T5,
        "t5-text": SHAPE,
        "tabular": TABULAR,
        "vit": VIT,
        "timesfm": TIMESFM,
        "timesfm-2.5": TIMESFM | {"output_quantile_len": 12},
        "time-moe": TIME_MOE,
        "toto-2": TOTO_2,
        "ttm": TTM,
        "visionts": VISIONTS,
    }
)


def prepare_model(model: Model) -> Model:
    """Return the new model, changed where random weights are of no use.

    Without the change, such a model has useful states only after training.
    """
    change = _CHANGES.get(getattr(model, "name", ""))
    return model if change is None else change(model)


def _place_codes(model: Any) -> Any:
    """Place the codes on vectors that the model's own convolutions compute from noise.

    Otherwise all steps have the same one of the small initial codes.
    """
    import torch

    vqvae = model.network.vqvae
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        vqvae.restart_unused_codes(vqvae.quantise(torch.randn(8, model.max_context)).encoded.flatten(0, 1))
    return model


def _add_bias(model: Any) -> Any:
    """Give the embedding a bias.

    The bias of a new embedding is 0, and then all states of a constant series are 0.
    """
    import torch

    with torch.no_grad():
        model.network.model.input_ff_layer.output_layer.bias.fill_(0.1)
    return model


_CHANGES: Mapping[str, Callable[[Any], Any]] = MappingProxyType({"totem": _place_codes, "timesfm-2.5": _add_bias})
