"""Published layouts of the released models that params/paper.yaml names, and where each is known from.

The hub cannot be reached from the machines that this project was written on. Configs and names of tensors are those
of the packages and of public files; `checks` are facts that others published about the released files, with which
`tasks/rehearsal/weights.py` compares what it writes. What no public source shows is in `unknown`.
Sources were read on 2026-11-27, at these commits: chronos-forecasting 95185d1, uni2ts 8d2a08d, lag-llama 013ff0c,
loto_forecast_platform 70e0c42.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tsfmscope.models.lag_llama import LAGS

CHRONOS = "github.com/amazon-science/chronos-forecasting"
UNI2TS = "github.com/SalesforceAIResearch/uni2ts"
LOTO = "github.com/arumajirou/loto_forecast_platform, audit/tsfm-runtime"
CHRONOS_README = f"{CHRONOS}, README.md: number of parameters"


@dataclass(frozen=True)
class Checks:
    """Facts of the released files that others published.

    None means that no source states it. parameters: rounded number of parameters. tensors: number of tensors.
    config_sha256, generation_sha256: SHA-256 of config.json and generation_config.json. bytes: size of the weight file,
    and its relative tolerance.
    """

    parameters: float | None
    tensors: int | None = None
    config_sha256: str | None = None
    generation_sha256: str | None = None
    bytes: tuple[int, float] | None = None


@dataclass(frozen=True)
class Layout:
    """Published layout of a released model.

    name: model in params/paper.yaml. repository: ORG/NAME on the hub. config: contents of config.json; of Lag-Llama,
    the `model_kwargs` of its Lightning file. generation: contents of generation_config.json; None: without that file.
    weights: name of the weight file, which no release here cuts into shards. Tensors are float32. sources: where
    config, names and checks were read. unknown: what no source shows.
    """

    name: str
    family: str
    repository: str
    config: Mapping[str, Any]
    checks: Checks
    sources: tuple[str, ...]
    unknown: str = ""
    generation: Mapping[str, Any] | None = None
    weights: str = "model.safetensors"
    has_tokenizer: bool = False

    @property
    def texts(self) -> dict[str, str]:
        """Text files by name, as the packages of their time write them."""
        found = {}
        if self.weights.endswith(".safetensors"):
            # transformers ends the file with a line feed, huggingface_hub's mixin of uni2ts does not.
            end = "" if self.family == "moirai" else "\n"
            found["config.json"] = json.dumps(self.config, indent=2, sort_keys=True) + end
        if self.generation is not None:
            found["generation_config.json"] = json.dumps(self.generation, indent=2, sort_keys=True) + "\n"
        return found


# Size -> d_model, d_ff, num_heads, blocks per stack. d_kv is 64.
T5_SIZES = {
    "tiny": (256, 1024, 4, 4),
    "mini": (384, 1536, 8, 4),
    "small": (512, 2048, 8, 6),
    "base": (768, 3072, 12, 12),
    "large": (1024, 4096, 16, 24),
}
# Size -> d_model, num_layers, published number of parameters.
MOIRAI_SIZES = {"small": (384, 6, 14e6), "base": (768, 12, 91e6), "large": (1024, 24, 311e6)}
T5_PARAMETERS = {"tiny": 8e6, "mini": 20e6, "small": 46e6, "base": 200e6, "large": 710e6}
BOLT_PARAMETERS = {"tiny": 9e6, "mini": 21e6, "small": 48e6, "base": 205e6}
# Keys of every T5 config that chronos-forecasting's test models show.
T5_KEYS = {
    "decoder_start_token_id": 0,
    "dense_act_fn": "relu",
    "dropout_rate": 0.1,
    "eos_token_id": 1,
    "feed_forward_proj": "relu",
    "initializer_factor": 0.05,
    "is_encoder_decoder": True,
    "is_gated_act": False,
    "layer_norm_epsilon": 1e-06,
    "model_type": "t5",
    "n_positions": 512,
    "pad_token_id": 0,
    "relative_attention_max_distance": 128,
    "relative_attention_num_buckets": 32,
    "use_cache": True,
}
# SHA-256 of generation_config.json of chronos-t5-small and chronos-t5-base: LOTO, runtime-result.json.
T5_GENERATION = "8f6833851ce53496a43ef87a975c766f7a3049e2d598ecef609a526ca6308534"


def _t5_shape(size: str) -> dict[str, int]:
    width, inner, heads, blocks = T5_SIZES[size]
    blocks_of = {"num_layers": blocks, "num_decoder_layers": blocks}
    return {"d_model": width, "d_ff": inner, "d_kv": 64, "num_heads": heads, **blocks_of}


def _chronos_t5(size: str) -> Layout:
    block = {
        "tokenizer_class": "MeanScaleUniformBins",
        "tokenizer_kwargs": {"low_limit": -15.0, "high_limit": 15.0},
        "n_tokens": 4096,
        "n_special_tokens": 2,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "use_eos_token": True,
        "model_type": "seq2seq",
        "context_length": 512,
        "prediction_length": 64,
        "num_samples": 20,
        "temperature": 1.0,
        "top_k": 50,
        "top_p": 1.0,
    }
    config = {
        **T5_KEYS,
        **_t5_shape(size),
        "architectures": ["T5ForConditionalGeneration"],
        "torch_dtype": "float32",
        "transformers_version": "4.31.0",
        "vocab_size": 4096,
        "chronos_config": block,
    }
    generation = {
        "_from_model_config": True,
        "decoder_start_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": 0,
        "transformers_version": "4.31.0",
    }
    sources: tuple[str, ...] = (
        f"{CHRONOS}, test/dummy-chronos-model: keys of config.json, names of tensors",
        f"{CHRONOS}, scripts/training/configs/chronos-t5-{size}.yaml: bins, context, horizon, tied embedding",
        CHRONOS_README,
    )
    small = size in ("small", "base")
    checks = Checks(
        T5_PARAMETERS[size],
        generation_sha256=T5_GENERATION if small else None,
        # A log of a download: "model.safetensors: 33.6M", "generation_config.json: 142".
        bytes=(33_600_000, 0.0015) if size == "tiny" else None,
    )
    unknown = (
        "order of the keys and optional keys of config.json (its SHA-256 is public for small and base, and differs); "
        "widths are those whose number of parameters fits"
    )
    if small:
        sources += (f"{LOTO}/chronos-t5-{size}: SHA-256 of generation_config.json, dtype of {size}",)
    return Layout(
        f"chronos-t5-{size}", "chronos-t5", f"amazon/chronos-t5-{size}", config, checks, sources, unknown, generation
    )


def _chronos_bolt(size: str) -> Layout:
    block = {
        "context_length": 2048,
        "input_patch_size": 16,
        "input_patch_stride": 16,
        "prediction_length": 64,
        "quantiles": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9],
        "use_reg_token": True,
    }
    config = {
        **T5_KEYS,
        **_t5_shape(size),
        "_name_or_path": f"autogluon/chronos-bolt-{size}",
        "architectures": ["ChronosBoltModelForForecasting"],
        "chronos_config": block,
        "chronos_pipeline_class": "ChronosBoltPipeline",
        "classifier_dropout": 0.0,
        "reg_token_id": 1,
        "torch_dtype": "float32",
        "transformers_version": "4.39.3",
        "vocab_size": 2,
    }
    tiny = size == "tiny"
    checks = Checks(
        BOLT_PARAMETERS[size],
        config_sha256="278f0086733031635fb1c861cb01c1bad6477420c7fcb19381a2993e335785e0" if tiny else None,
        bytes=(34_622_352, 0.0) if tiny else None,
    )
    sources: tuple[str, ...] = (
        f"{CHRONOS}, test/dummy-chronos-bolt-model: keys of config.json, names of tensors",
        CHRONOS_README,
        "huggingface.co/light-curve/chronos-bolt-tiny: d_model of every size",
    )
    if tiny:
        sources += (f"{LOTO}/chronos-bolt-tiny: SHA-256 of config.json (1,120 bytes); 34,622,352 bytes of weights",)
    unknown = "" if tiny else "config.json: that of chronos-bolt-tiny, whose SHA-256 is public, with other widths"
    return Layout(
        f"chronos-bolt-{size}", "chronos-bolt", f"amazon/chronos-bolt-{size}", config, checks, sources, unknown
    )


def _t5_base() -> Layout:
    config = {
        **{key: T5_KEYS[key] for key in ("decoder_start_token_id", "dropout_rate", "eos_token_id")},
        **{key: T5_KEYS[key] for key in ("is_encoder_decoder", "layer_norm_epsilon", "model_type", "n_positions")},
        **{key: T5_KEYS[key] for key in ("pad_token_id", "relative_attention_num_buckets")},
        **{key: value for key, value in _t5_shape("base").items() if key != "num_decoder_layers"},
        "architectures": ["T5ForConditionalGeneration"],
        "initializer_factor": 1.0,
        "output_past": True,
        "vocab_size": 32128,
    }
    sources = (
        "a public copy of the config on GitHub (t5_base of a file that measures KQI): config.json",
        "huggingface.co/google-t5/t5-base: 220 million parameters",
        "transformers, T5ForConditionalGeneration: names of tensors",
    )
    unknown = (
        "name under which the tied embedding is stored; the tokenizer's vocabulary: one of 32,100 pieces of our own "
        "stands for it, as tokenizer.json; task_specific_params are left out"
    )
    return Layout(
        "t5-base", "t5-text", "google-t5/t5-base", config, Checks(220e6), sources, unknown, has_tokenizer=True
    )


def _moirai(version: str, size: str) -> Layout:
    width, blocks, parameters = MOIRAI_SIZES[size]
    prefix = "uni2ts.distribution."
    config = {
        "attn_dropout_p": 0.0,
        "d_model": width,
        "distr_output": {
            "_target_": f"{prefix}mixture.MixtureOutput",
            "components": [
                {"_target_": f"{prefix}student_t.StudentTOutput"},
                {"_target_": f"{prefix}normal.NormalFixedScaleOutput", "scale": 0.001},
                {"_target_": f"{prefix}negative_binomial.NegativeBinomialOutput"},
                {"_target_": f"{prefix}log_normal.LogNormalOutput"},
            ],
        },
        "dropout_p": 0.0,
        "max_seq_len": 512,
        "num_layers": blocks,
        "patch_sizes": [8, 16, 32, 64, 128],
        "scaling": True,
    }
    sources = (
        f"{UNI2TS}, cli/conf/pretrain/model/moirai_{size}.yaml: config",
        f"{UNI2TS}, src/uni2ts/model/moirai/module.py: form of config.json, names of tensors",
        f"{UNI2TS}, project/moirai-1/README.md: number of parameters of 1.0-R",
    )
    unknown = "bytes of config.json"
    if version == "1.1":
        unknown += "; that 1.1-R has the shape of 1.0-R: uni2ts loads both with one class and states no other config"
    name = f"moirai-{size}" if version == "1.0" else f"moirai-1.1-{size}"
    repository = f"Salesforce/moirai-{version}-R-{size}"
    return Layout(name, "moirai", repository, config, Checks(parameters), sources, unknown)


def _lag_llama() -> Layout:
    kwargs = {
        "input_size": 1,
        "context_length": 32,
        "max_context_length": 2048,
        "lags_seq": list(LAGS),
        "n_layer": 8,
        "n_embd_per_head": 16,
        "n_head": 9,
        "scaling": "robust",
        "distr_output": "gluonts.torch.distributions.studentT.StudentTOutput",
        "num_parallel_samples": 100,
        "rope_scaling": None,
        "time_feat": True,
        "dropout": 0.0,
    }
    sources = (
        "github.com/time-series-foundation-models/lag-llama, lag_llama/model/module.py: names of tensors",
        f"{LOTO}/lag-llama, runtime-result.json: hyper-parameters, 73 tensors, 29,488,819 bytes",
    )
    unknown = (
        "entries besides state_dict and hyper_parameters: the file has the size of the weights three times, as with "
        "the two moments of Adam, which are written here; hyper-parameters that no loader reads are left out"
    )
    checks = Checks(None, tensors=73, bytes=(29_488_819, 0.01))
    repository = "time-series-foundation-models/Lag-Llama"
    return Layout("lag-llama", "lag-llama", repository, kwargs, checks, sources, unknown, weights="lag-llama.ckpt")


def _all() -> tuple[Layout, ...]:
    moirai = [_moirai(version, size) for version in ("1.0", "1.1") for size in MOIRAI_SIZES]
    bolt = [_chronos_bolt(size) for size in BOLT_PARAMETERS]
    return (*map(_chronos_t5, T5_SIZES), *bolt, _t5_base(), *moirai, _lag_llama())


# Name -> layout, in the order of params/paper.yaml.
LAYOUTS: Mapping[str, Layout] = MappingProxyType({layout.name: layout for layout in _all()})
# The smallest model of each family.
QUICK = ("chronos-t5-tiny", "chronos-bolt-tiny", "t5-base", "moirai-small", "lag-llama")
