"""Run the package toto-2 on folders that a test wrote; a script for the package's own interpreter (Python 3.12).

Each folder has `model` (a checkpoint) and `inputs.npz` (target, target_mask [B, N, T]; series_ids [B, N]; horizon). The
script writes `outputs.npz` (states of every layer [B, N, T, d], and quantiles [Q, B, N, H]) and `saved`, the same
checkpoint as the package saves it.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
import torch


def run(folder: Path) -> None:
    from toto2 import Toto2Model

    model = Toto2Model.from_pretrained(str(folder / "model")).eval()
    model.save_pretrained(folder / "saved")
    with np.load(folder / "inputs.npz") as saved:
        inputs = {name: torch.from_numpy(saved[name]) for name in ("target", "target_mask", "series_ids")}
        horizon = int(saved["horizon"])
    rows, series = inputs["series_ids"].shape
    states = {}

    def keep(key: str, is_variate: bool, found: torch.Tensor) -> None:
        # Time layers have the axes (row series) patch, variate layers (row patch) series.
        if is_variate:
            states[key] = found.unflatten(0, (rows, -1)).transpose(1, 2)
        else:
            states[key] = found.reshape(rows, series, -1, found.shape[-1])

    decoder = model.transformer
    first = decoder._if_variate_layer(0)
    decoder.layers[0].register_forward_pre_hook(lambda _, args: keep("layer 0", first, args[0]))
    for number, layer in enumerate(decoder.layers):
        key, is_variate = f"layer {number + 1}", decoder._if_variate_layer(number)
        layer.register_forward_hook(lambda _, args, out, key=key, of=is_variate: keep(key, of, out))
    decoder.out_norm.register_forward_hook(lambda _, args, out: keep("normed", False, out))
    quantiles = model.forecast(inputs, horizon, has_missing_values=True)
    found = {name: value.detach().numpy() for name, value in states.items()}
    np.savez_compressed(folder / "outputs.npz", quantiles=quantiles.numpy(), **found)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for name in sys.argv[1:]:
        run(Path(name))
