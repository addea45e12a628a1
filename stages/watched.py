"""The keys of params.yaml that DVC watches: it runs no stage whose `params:` in dvc.yaml name one that is not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from stages import STAGES
from stages.params import PARAMS_FILE, Params, ParamsError


def check(params: Params, path: str | Path = PARAMS_FILE) -> None:
    """Raises ParamsError, which names every watched key that the file lacks, with its default to write.

    DVC reads the file itself, knows no defaults, and names the keys of one stage, once those before it have run.
    params: what was read from the file.
    """
    block = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    watched = dict.fromkeys(key for stage in STAGES for key in stage.params)
    missing: dict[str, dict[str, Any]] = {}  # block, "" for the file itself -> key -> default
    for head, _, key in (key.partition(".") for key in watched):
        default = getattr(params, head)
        if head not in block:
            whole = missing.setdefault("", {}).setdefault(head, {} if isinstance(default, BaseModel) else default)
            if key:
                whole[key] = getattr(default, key)
        elif key and key not in block[head]:
            missing.setdefault(head, {})[key] = getattr(default, key)
    if missing:
        parts = [f"to `{head}` {_said(keys)}" if head else _said(keys) for head, keys in sorted(missing.items())]
        raise ParamsError(f"{path}: DVC knows no defaults of keys that dvc.yaml watches; add {', and '.join(parts)}")


def _said(keys: dict[str, Any]) -> str:
    """As a line of YAML each."""
    flow = (yaml.safe_dump({key: value}, default_flow_style=True, width=float("inf")) for key, value in keys.items())
    return ", ".join(f"`{one.strip()[1:-1]}`" for one in flow)
