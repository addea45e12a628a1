"""Check that params.yaml contains every key that dvc.yaml lists under `params:`.

DVC refuses to run a stage if such a key is missing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from tsfmscope.stages import STAGES
from tsfmscope.stages.config.bounded_yaml import load_yaml
from tsfmscope.stages.config.params import LARGEST_FILE, PARAMS_FILE, Params, ParamsError
from tsfmscope.tasks.regular_files import read_text


def check(params: Params, path: str | Path = PARAMS_FILE) -> None:
    """Raise ParamsError if the file lacks a key of dvc.yaml; the message lists each with its default value.

    DVC reads the file itself and has no defaults. It reports the missing keys of one stage only, after the
    stages before it have run. params: the params that were read from the file.
    """
    block = load_yaml(read_text(Path(path), LARGEST_FILE))
    dvc_keys = dict.fromkeys(key for stage in STAGES for key in stage.params)
    # Block ("" for the file itself) -> key -> default.
    missing: dict[str, dict[str, Any]] = {}
    for head, _, key in (key.partition(".") for key in dvc_keys):
        default = getattr(params, head)
        if head not in block:
            defaults = missing.setdefault("", {}).setdefault(head, {} if isinstance(default, BaseModel) else default)
            if key:
                defaults[key] = getattr(default, key)
        elif key and key not in block[head]:
            missing.setdefault(head, {})[key] = getattr(default, key)
    if missing:
        parts = [
            f"to `{head}` {_yaml_text(keys)}" if head else _yaml_text(keys) for head, keys in sorted(missing.items())
        ]
        raise ParamsError(f"{path}: DVC has no defaults for the keys that dvc.yaml lists; add {', and '.join(parts)}")


def _yaml_text(keys: dict[str, Any]) -> str:
    """Return the keys and values as lines of YAML, separated by commas."""
    flow = (yaml.safe_dump({key: value}, default_flow_style=True, width=float("inf")) for key, value in keys.items())
    return ", ".join(f"`{line.strip()[1:-1]}`" for line in flow)
