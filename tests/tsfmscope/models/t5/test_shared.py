"""The T5 families against transformers' own forward pass, and those of the chronos package against its pipelines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from chronos import BaseChronosPipeline

from tests.tsfmscope.models.families import CLASSES, hard_windows
from tsfmscope.models.registry import family_class
from tsfmscope.series.types import Windows

Make = Callable[..., Windows]


@pytest.mark.parametrize(
    ("name", "pipeline", "changes"),
    [
        ("chronos-t5", "ChronosPipeline", {}),
        ("chronos-bolt", "ChronosBoltPipeline", {}),
        ("chronos-bolt", "ChronosBoltPipeline", {"use_reg_token": False}),
        ("chronos-2", "Chronos2Pipeline", {}),
    ],
)
def test_a_saved_model_is_a_pipeline_of_the_package_whose_embedding_is_the_last_encoder_state(
    name: str, pipeline: str, changes: dict[str, Any], windows: Make, tmp_path: Path
) -> None:
    family = CLASSES[name].new({**family_class(name).example, **changes}, seed=2)
    family.save(tmp_path)
    package = BaseChronosPipeline.from_pretrained(tmp_path)
    assert type(package).__name__ == pipeline
    made = windows(count=8, context=60, horizon=8)
    if not changes and name != "chronos-2":
        hard_windows(made)
    context = torch.from_numpy(made.context)
    embedded, scales = package.embed(context[:, None] if name == "chronos-2" else context)
    tokens = family.tokenize(made)
    states = next(layer.states for layer in family.hidden_states(tokens) if layer.normed)
    wanted = torch.cat(embedded) if name == "chronos-2" else embedded
    np.testing.assert_allclose(states, wanted, atol=1e-5 * max(1.0, float(wanted.abs().max())))
    if name != "chronos-t5":
        locs, scales = zip(*scales, strict=True) if name == "chronos-2" else scales
        np.testing.assert_allclose(tokens.arrays["loc"], np.ravel(locs), rtol=1e-6)
        np.testing.assert_allclose(tokens.arrays["scale"], np.ravel(scales), rtol=1e-6)
