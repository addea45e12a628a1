"""The T5 families against transformers' own forward pass, and those of the chronos package against its pipelines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from chronos import BaseChronosPipeline

from tests.tsfmscope.models.families import CLASSES, EXAMPLES, hard_windows, names
from tsfmscope.models.t5.shared import T5Stacks
from tsfmscope.models.types import Tokens
from tsfmscope.series.types import Windows

Make = Callable[..., Windows]


def run_network(family: Any, windows: Windows, tokens: Tokens) -> Any:
    """Return transformers' output for these tokens; Chronos-Bolt embeds patches itself."""
    network, arrays = family.network, {name: torch.from_numpy(values) for name, values in tokens.arrays.items()}
    with torch.no_grad():
        if family.name == "chronos-bolt":
            _, _, embedded, mask = network.encode(torch.from_numpy(windows.context))
            inputs, decoder_ids = {"inputs_embeds": embedded}, torch.zeros(len(windows), 1, dtype=torch.long)
        else:
            inputs, mask, decoder_ids = (
                {"input_ids": arrays["ids"].long()},
                arrays["mask"],
                arrays["decoder_ids"].long(),
            )
        encoder = network.encoder(**inputs, attention_mask=mask, output_hidden_states=True)
        decoder = network.decoder(
            input_ids=decoder_ids, encoder_hidden_states=encoder[0], encoder_attention_mask=mask,
            output_hidden_states=True,
        )  # fmt: skip
        logits = None
        if family.softmax_head:
            logits = network(attention_mask=mask, decoder_input_ids=decoder_ids, **inputs).logits
    return {"encoder": encoder.hidden_states, "decoder": decoder.hidden_states}, logits


@pytest.mark.parametrize("any_family", names(lambda cls: issubclass(cls, T5Stacks)), indirect=True)
def test_every_layer_and_the_logits_are_those_of_transformers(any_family: Any, items: Make) -> None:
    made = items(any_family, count=8)
    if any_family.modality == "series":
        hard_windows(made)
    tokens = any_family.tokenize(made)
    expected, logits = run_network(any_family, made, tokens)
    for layer in any_family.hidden_states(tokens):
        states = torch.from_numpy(layer.states)
        if layer.layer == any_family.layers[layer.stack] and not layer.normed:
            # transformers keeps the last block's state normed only
            states = getattr(any_family.network, layer.stack).final_layer_norm(states).detach()
        np.testing.assert_allclose(states, expected[layer.stack][layer.layer], atol=1e-5)
    if logits is not None:
        found = np.concatenate(list(any_family.forecast_logits(tokens)))
        np.testing.assert_allclose(found, logits, atol=1e-5 * float(logits.abs().max()))


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
    family = CLASSES[name].new({**EXAMPLES[name], **changes}, seed=2)
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
