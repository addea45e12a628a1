"""ViT: the package's own states and loss, pixels by hand, and checkpoints as the hub has them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import ViTConfig, ViTForImageClassification, ViTModel

from tsfmscope.errors import ModelError
from tsfmscope.models.types import TokenKind
from tsfmscope.models.vit import MASKED_SHARE, ViT
from tsfmscope.series import other_modalities
from tsfmscope.series.types import Windows

Make = Callable[..., Windows]
SHAPE = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
SHAPE |= {"image_size": 8, "patch_size": 4}


def pixels_of(made: Windows, side: int = 8) -> np.ndarray:
    """Images [W, 3, side, side] in -1..1, written out."""
    values = np.concatenate((made.context, made.future), axis=1)[:, 1:]
    return (values.reshape(-1, side, side, 3).transpose(0, 3, 1, 2) / 255 - 0.5) / 0.5


def test_states_are_the_package_s_own(vit: ViT, items: Make) -> None:
    made = items(vit, count=3)
    with torch.inference_mode():
        whole = vit.network.vit(torch.from_numpy(pixels_of(made)).float(), output_hidden_states=True)
    states = {(s.layer, s.normed): s.states for s in vit.hidden_states(vit.tokenize(made))}
    for layer, hidden in enumerate(whole.hidden_states):
        np.testing.assert_allclose(states[layer, False], hidden.numpy(), atol=1e-4)
    np.testing.assert_allclose(states[vit.layers["encoder"], True], whole.last_hidden_state.numpy(), atol=1e-4)


def test_the_first_row_is_cls_and_the_others_are_patches_row_by_row(vit: ViT, items: Make) -> None:
    made = items(vit, count=1)
    tokens = vit.tokenize(made)
    assert tokens.kinds["encoder"].tolist() == [[TokenKind.REG] + [TokenKind.OBSERVATION] * 16]
    changed = made.context.copy()
    changed[0, 1 + 3 * (8 * 2 + 5)] += 90  # red of the pixel in row 2, column 5: patch 1 * 4 + 2 of 4 x 4
    other = vit.tokenize(replace(made, context=changed))
    first, second = (next(vit.hidden_states(one)).states[0] for one in (tokens, other))
    assert np.flatnonzero((first != second).any(axis=1)).tolist() == [1 + 6]


def test_the_loss_is_the_mean_error_of_the_masked_patches_pixels(vit: ViT, items: Make) -> None:
    made = items(vit, count=3)
    context, future = torch.from_numpy(made.context), torch.from_numpy(made.future)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        loss = vit.loss(context, future)
        torch.manual_seed(5)
        masked = torch.rand(3, 16).argsort(dim=1) < round(MASKED_SHARE * 16)
    assert masked.sum(dim=1).tolist() == [10, 10, 10]
    pixels = torch.from_numpy(pixels_of(made)).float()
    with torch.inference_mode():
        made_up = vit.network(pixels, bool_masked_pos=masked).reconstruction
    error = (made_up - pixels).abs().mean(dim=1).unfold(1, 2, 2).unfold(2, 2, 2).flatten(3).mean(dim=3).flatten(1)
    assert loss.item() == pytest.approx(error[masked].mean().item(), rel=1e-4)


def test_missing_pixels_stand_at_the_mean_and_patches_without_any_other_are_padding(vit: ViT, items: Make) -> None:
    made = items(vit, count=1)
    gone = made.context.copy()
    gone[0, 1:].reshape(-1)[: 3 * 8 * 2 - 1] = np.nan  # the first two rows of pixels but for the last blue
    gone[0, 3 * 8 * 2] = np.nan
    tokens = vit.tokenize(replace(made, context=gone))
    assert tokens.kinds["encoder"].tolist() == [
        [TokenKind.REG] + [TokenKind.PADDING] * 4 + [TokenKind.OBSERVATION] * 12
    ]
    grey = made.context.copy()
    grey[0, 1 : 1 + 3 * 8 * 2] = 127.5
    first, second = (
        list(vit.hidden_states(vit.tokenize(replace(made, context=context))))[-1].states for context in (gone, grey)
    )
    np.testing.assert_allclose(first, second, atol=1e-5)


@pytest.mark.parametrize("shape", [(16, 16), (4, 4), (6, 12)])
def test_images_of_another_size_are_resized(
    vit: ViT, windows_of: Callable[..., Windows], shape: tuple[int, int]
) -> None:
    image = np.random.default_rng(0).integers(0, 256, (*shape, 3)).astype(np.uint8)
    values = other_modalities.item(image)[None]
    tokens = vit.tokenize(windows_of(values[:, :-1], values[:, -1:]))
    assert (tokens.kinds["encoder"][:, 1:] == TokenKind.OBSERVATION).all()
    planes = torch.from_numpy(image).permute(2, 0, 1)[None].float()
    resized = torch.nn.functional.interpolate(planes, size=(8, 8), mode="bilinear", antialias=True)
    with torch.inference_mode():
        whole = vit.network.vit((resized / 255 - 0.5) / 0.5)
    found = list(vit.hidden_states(tokens))[-1].states
    np.testing.assert_allclose(found, whole.last_hidden_state.numpy(), atol=1e-4)


def released(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Under the names of google/vit-base-patch16-224, which are older than transformers' present modules."""
    names = {
        "attention.q_proj": "attention.attention.query", "attention.k_proj": "attention.attention.key",
        "attention.v_proj": "attention.attention.value", "attention.o_proj": "attention.output.dense",
        "mlp.fc1": "intermediate.dense", "mlp.fc2": "output.dense", "vit.layers.": "vit.encoder.layer.",
    }  # fmt: skip
    renamed = {}
    for name, tensor in state.items():
        for ours, theirs in names.items():
            name = name.replace(ours, theirs)
        renamed[name] = tensor.contiguous()
    return renamed


def test_a_classifier_as_released_loads_without_its_head(items: Make, tmp_path: Path) -> None:
    network = ViTForImageClassification(ViTConfig(**SHAPE, num_labels=5)).eval()
    network.config.architectures = ["ViTForImageClassification"]
    network.config.save_pretrained(tmp_path)
    save_file(released(network.state_dict()), tmp_path / "model.safetensors", metadata={"format": "pt"})
    family = ViT.load(tmp_path)
    made = items(family, count=2)
    with torch.inference_mode():
        whole = network.vit(torch.from_numpy(pixels_of(made)).float())
    found = list(family.hidden_states(family.tokenize(made)))[-1].states
    np.testing.assert_allclose(found, whole.last_hidden_state.numpy(), atol=1e-5)
    with pytest.raises(ValueError, match=r"got ViTModel and images of .* expected ViTForMaskedImageModeling"):
        family.loss(torch.from_numpy(made.context), torch.from_numpy(made.future))


def test_the_pixels_are_normed_as_the_folder_says(items: Make, tmp_path: Path) -> None:
    ViTModel(ViTConfig(**SHAPE), add_pooling_layer=False).save_pretrained(tmp_path)
    plain = ViT.load(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"image_mean": [0, 0, 0], "image_std": [1, 1, 1]}))
    other = ViT.load(tmp_path)
    made = items(plain, count=1)
    pixels = torch.from_numpy(pixels_of(made) * 0.5 + 0.5).float()
    with torch.inference_mode():
        whole = other.network(pixels).last_hidden_state.numpy()
    found = list(other.hidden_states(other.tokenize(made)))[-1].states
    np.testing.assert_allclose(found, whole, atol=1e-5)
    assert not np.allclose(found, list(plain.hidden_states(plain.tokenize(made)))[-1].states, atol=1e-3)


@pytest.mark.parametrize(
    "content", ["[", "[]", '{"image_mean": [0.5]}', '{"image_std": [0, 0, 0]}', '{"image_mean": ["a", 1, 2]}']
)
def test_a_broken_processor_is_named(vit: ViT, tmp_path: Path, content: str) -> None:
    vit.save(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(content)
    with pytest.raises(ModelError, match=r"preprocessor_config.json: .*fetch"):
        ViT.load(tmp_path)
