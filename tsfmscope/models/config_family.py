"""Recognition of a checkpoint's family from its config.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tsfmscope.errors import ModelError
from tsfmscope.models.common.checkpoint_folder import LARGEST_CONFIG, check_adapter
from tsfmscope.models.registry import families
from tsfmscope.regular_files import read_text

# Class name under `architectures` -> family.
ARCHITECTURES = {
    "Chronos2Model": "chronos-2",
    "ChronosBoltModelForForecasting": "chronos-bolt",
    "FlowStateForPrediction": "flowstate",
    "FlowStateModel": "flowstate",
    "PatchTSTFMForPrediction": "patchtst-fm",
    "PatchTSTFMForPretraining": "patchtst-fm",
    "PatchTSTForPrediction": "patchtst",
    "PatchTSTForPretraining": "patchtst",
    "TimeMoeForPrediction": "time-moe",
    "TimesFm2_5ModelForPrediction": "timesfm-2.5",
    "TimesFmModelForPrediction": "timesfm",
    "TinyTimeMixerForPrediction": "ttm",
    "TotemNetwork": "totem",
    "ViTForImageClassification": "vit",
    "ViTForMaskedImageModeling": "vit",
    "ViTMAEForPreTraining": "visionts",
    "ViTModel": "vit",
}
# Class of the package chronos that forecasts with a checkpoint -> family.
PIPELINES = {"ChronosPipeline": "chronos-t5", "ChronosBoltPipeline": "chronos-bolt", "Chronos2Pipeline": "chronos-2"}
# Key of the block `chronos_config` -> family, in the order in which they count.
CHRONOS_KEYS = {"max_output_patches": "chronos-2", "input_patch_size": "chronos-bolt", "tokenizer_class": "chronos-t5"}
# Names of keys -> family, for packages whose config.json names no class. The first whose keys are
# all present counts, so that a family whose config is that of another with a block comes first.
KEYS = {
    ("wavetoken_config",): "wavetoken",
    ("chronos_config", "feed_forward_proj"): "chronos-t5",
    # The released config of t5-base names neither its activation nor the number of decoder blocks.
    ("d_kv", "relative_attention_num_buckets"): "t5-text",
    ("patch_sizes", "distr_output"): "moirai",
    ("num_predict_token", "quantile_levels"): "moirai-2",
    ("t5_config", "patch_stride_len"): "moment",
    ("dim_output", "task"): "tabular",
    ("layer_group_size", "num_variate_layers_per_group"): "toto-2",
}


def family_of_folder(folder: Path) -> str | None:
    """Return the family that the config.json of a folder shows; None if there is no such file or no match.

    Raises ModelError if the file is not a JSON object, and for a LoRA adapter.
    """
    check_adapter(folder)
    path = folder / "config.json"
    if not path.is_file():
        return None
    try:
        config = json.loads(read_text(path, LARGEST_CONFIG))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path}: expected JSON ({error}); fetch or save the checkpoint again") from error
    if not isinstance(config, dict):
        raise ModelError(f"{path}: expected an object, got {type(config).__name__}; fetch the checkpoint again")
    return family_of_config(config)


def family_of_config(config: Mapping[str, Any]) -> str | None:
    """Return the family of a checkpoint with this config.json; None if it is not recognised.

    A config names its class under `architectures`, or has the family's name as its `model_type`, or has keys
    that only configs of one family have, also in `chronos_config`.
    """
    architectures = config.get("architectures")
    for name in architectures if isinstance(architectures, list) else ():
        if name in ARCHITECTURES:
            return ARCHITECTURES[name]
    if (name := str(config.get("model_type"))) in families():
        return name
    # Training scripts write no class, or that of T5, for every Chronos model.
    if isinstance(block := config.get("chronos_config"), dict):
        if family := next((family for key, family in CHRONOS_KEYS.items() if key in block), None):
            return family
        if family := PIPELINES.get(str(config.get("chronos_pipeline_class"))):
            return family
    return next((family for keys, family in KEYS.items() if all(key in config for key in keys)), None)
