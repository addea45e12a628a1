"""Recognition of a checkpoint's family from its config.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tsfmscope.errors import ModelError
from tsfmscope.files import read_text
from tsfmscope.models.common.checkpoint_folder import LARGEST_CONFIG, check_adapter
from tsfmscope.models.registry import FAMILIES, families, family_class


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

    A config names a class of the family under `architectures` or `chronos_pipeline_class`, or has the family's name as
    its `model_type`, or has keys that only configs of one family have. Training scripts write no class, or that of T5,
    for every Chronos model.
    """
    classes = {name: family_class(name) for name in FAMILIES}
    named = config.get("architectures")
    named = [*(named if isinstance(named, list) else ()), config.get("chronos_pipeline_class")]
    for name, cls in classes.items():
        if any(architecture in named for architecture in cls.architectures):
            return name
    if (kind := str(config.get("model_type"))) in families():
        return kind
    for name, cls in classes.items():
        has_own = bool(cls.config_keys) and all(_has(config, key) for key in cls.config_keys)
        if has_own and not any(_has(config, key) for key in cls.foreign_keys):
            return name
    return None


def _has(config: Mapping[str, Any], key: str) -> bool:
    """Return whether a config has a key, or a block that has it for a key "block.key"."""
    block, _, inner = key.rpartition(".")
    part = config.get(block) if block else config
    return isinstance(part, Mapping) and inner in part
