"""VisionTS (Chen et al. 2025): a series drawn as an image, whose masked right a masked autoencoder (ViT) fills in.

The network is transformers' ViTMAEForPreTraining, so facebook/vit-mae-base loads: the weights that the authors use
(mae_visualize_vit_base), never trained on a series. Drawing and reading are ours, in visionts_image.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from jaxtyping import Float, Int32, Int64

from tasks.models import folders
from tasks.models import visionts_checkpoint as checkpoint
from tasks.models.attention import AttentionLayer
from tasks.models.base import Forecaster
from tasks.models.capture import Pass, Stack
from tasks.models.scale import HUGE, saturated
from tasks.models.types import TokenKind, Tokens, WeightMatrix
from tasks.series.types import Windows

if TYPE_CHECKING:
    import torch

    from tasks.models.visionts_image import Layout

TRAINED = (1, 7, 12, 24)  # periods drawn in training where the config names none: daily, monthly, hourly data, and none


class VisionTS(Forecaster):
    """Rows of the encoder: CLS (kind REG), then one a visible patch, row by row: those that the context is drawn on.

    A window is drawn from its first observed step on, in columns of one period: the config's periodicity, else the
    frequency's in the release, else the season (the release can also try several on held-out steps). Rows before CLS
    are PADDING and masked. A missing step repeats the one before, as in the release's evaluation; a patch with no
    observed step is PADDING, but attended to. How much of the image a context is given depends on the horizon, and so
    do its tokens. MAE's random choice of patches is replaced by the right part of the image.

    The decoder, narrower than the encoder in every release, is no stack here, since one dump holds one width; its
    matrices are among the weights. A point forecaster: every quantile is the same number.
    """

    name: ClassVar[str] = "visionts"
    stacks: ClassVar[tuple[str, ...]] = ("encoder",)
    direct: ClassVar[bool] = True
    plain_attention: ClassVar[bool] = True
    network: Any  # transformers' ViTMAEForPreTraining

    def __init__(self, network: Any, *, batch: int = 64) -> None:
        """Wrap a ViTMAEForPreTraining; batch: windows a forward pass."""
        self.network = network.eval()
        self.batch = batch

    @classmethod
    def new(cls, config: Mapping[str, Any], *, seed: int) -> Self:
        """Random weights. Keys, named as in ViTMAEConfig: REQUIRED, those of DEFAULTS, and our periodicity (steps)."""
        full = folders.filled_config(config, checkpoint.REQUIRED, checkpoint.DEFAULTS, cls.name)
        if wrong := checkpoint.unusable(full):
            raise ValueError(f"{cls.name} config: {wrong}")
        return cls(folders.build(lambda: checkpoint.made(full), seed))

    @classmethod
    def load(cls, folder: Path, *, device: str = "cpu", periodicity: int | None = None) -> Self:
        """A released or saved ViTMAEForPreTraining, safetensors only. ModelError names the file that is wrong.

        periodicity: steps of a column, where not as the checkpoint says; `save` keeps it.
        """
        return cls(checkpoint.read(Path(folder), device, periodicity))

    def save(self, folder: Path) -> None:
        """config.json and model.safetensors, which `ViTMAEForPreTraining.from_pretrained` reads."""
        self.network.save_pretrained(folder)

    @property
    def layers(self) -> Mapping[str, int]:
        """Blocks of the encoder."""
        return {"encoder": len(self.network.vit.layers)}

    @property
    def width(self) -> int:
        """hidden_size."""
        return int(self.network.config.hidden_size)

    def rows_per_window(self, context: int, horizon: int) -> Mapping[str, int]:
        """Patches with an observed step; the fewest of all frequencies where the config names no period."""
        from tasks.models.visionts_image import PERIODS

        asked = self.network.config.periodicity
        named = {1, *(steps for periods in PERIODS.values() for steps in periods if steps <= context)}
        wheres = [self._layout(context, horizon, period) for period in ([asked] if asked else sorted(named))]
        return {"encoder": min(int(self._valued(np.ones((1, context), bool), where).sum()) for where in wheres)}

    def weights(self) -> Iterator[WeightMatrix]:
        """q, k, v, o (self), mlp_in, mlp_out of the encoder, then of the decoder; `layer` counts from 1."""
        network = self.network
        stacks = {"encoder": network.vit.layers, "decoder": network.decoder.decoder_layers}
        for stack, blocks in stacks.items():
            for layer, block in enumerate(blocks, start=1):
                attention = block.attention
                for what in ("q", "k", "v", "o"):
                    module, heads = getattr(attention, f"{what}_proj"), int(attention.num_attention_heads)
                    yield WeightMatrix.of(module, stack, layer, what, attention="self", heads=heads)
                for what, module in (("mlp_in", block.mlp.fc1), ("mlp_out", block.mlp.fc2)):
                    yield WeightMatrix.of(module, stack, layer, what)

    def attentions(self) -> Iterator[AttentionLayer]:
        """Self-attention of the encoder's, then of the decoder's blocks."""
        return checkpoint.attentions(self.network)

    def loss(self, context: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
        """Huber loss (delta 1) of the forecast in pixel values, mean of observed steps.

        The authors fine-tune with squared error; here one series that leaves its context's range would outweigh the
        batch. So that a batch has few layouts, contexts are cut to their last C, C / 2, C / 4 ... steps, whichever they
        fill; the period is the config's, else drawn from TRAINED, those that C holds twice, by torch's generator.
        """
        import torch
        from torch.nn import functional

        from tasks.models.visionts_image import scaled

        past, later, device = context.cpu().numpy(), future.cpu().numpy(), self.network.device
        lengths, period = _halved(past), self._training_period(past.shape[1])
        losses = []
        for length in np.unique(lengths).tolist():
            inputs = scaled(past[lengths == length, -length:])
            target = (later[lengths == length] - inputs.loc[:, None]) / inputs.scale[:, None]
            aim = torch.from_numpy(target.clip(-HUGE, HUGE).astype(np.float32)).to(device)
            where = self._layout(length, later.shape[1], period if period <= length else 1)
            answer = self._answered(torch.from_numpy(inputs.values).to(device), where)
            known = ~torch.isnan(aim)
            losses.append(functional.huber_loss(answer[known], aim[known], reduction="none"))
        found = torch.cat(losses)
        loss: torch.Tensor = found.sum() / max(len(found), 1)
        return loss

    def _tokenize(self, windows: Windows) -> Tokens:
        import torch

        from tasks.models.visionts_image import drawn, scaled

        inputs = scaled(windows.context)
        wheres = self._layouts(windows, inputs.start)
        count, pixels = max(len(where.visible) for where in [*wheres, self._full(windows)]), wheres[0].patch ** 2
        patches = np.zeros((len(windows), count, pixels), dtype=np.float32)
        ids = np.full((len(windows), count), -1, dtype=np.int32)
        kinds = np.full((len(windows), 1 + count), TokenKind.PADDING, dtype=np.int8)
        for where, at in _grouped(wheres).items():
            rows, shown = slice(count - len(where.visible), count), inputs.values[at, -where.length :]
            patches[at, rows] = drawn(torch.from_numpy(shown), where).numpy()
            ids[at, rows] = where.visible
            valued = self._valued(inputs.observed[at, -where.length :], where)
            kinds[at, 1 + rows.start :] = np.where(valued, TokenKind.OBSERVATION, TokenKind.PADDING)
            kinds[at, rows.start] = TokenKind.REG
        return Tokens(
            arrays={"patches": patches, "ids": ids, "loc": saturated(inputs.loc), "scale": saturated(inputs.scale)},
            kinds={"encoder": kinds},
            types={},
            series=windows.series,
            origin=windows.origin,
        )

    def _pass(self, tokens: Tokens) -> Pass:
        import torch

        vit = self.network.eval().vit
        patches, ids = tokens.arrays["patches"], tokens.arrays["ids"].astype(np.int64)

        def forward(part: slice) -> None:
            self._encoded(torch.from_numpy(np.array(patches[part])), torch.from_numpy(ids[part]))

        queries = {"encoder": [block.attention.q_proj for block in vit.layers]}
        return Pass({"encoder": Stack(vit.layers, vit.layernorm)}, forward, queries)

    def _forecast(self, windows: Windows, levels: tuple[float, ...], samples: int, seeds: list[int]) -> np.ndarray:
        import torch

        from tasks.models.visionts_image import scaled

        self.network.eval()
        inputs = scaled(windows.context)
        point = np.empty((len(windows), windows.horizon))
        for where, group in _grouped(self._layouts(windows, inputs.start)).items():
            for first in range(0, len(group), self.batch):
                at = group[first : first + self.batch]
                steps = torch.from_numpy(inputs.values[at, -where.length :]).to(self.network.device)
                with torch.inference_mode():
                    point[at] = self._answered(steps, where).double().cpu().numpy()
        values = point * inputs.scale[:, None] + inputs.loc[:, None]
        return np.repeat(values[:, None], len(levels), axis=1)  # [W, Q, H]

    def _answered(self, steps: torch.Tensor, where: Layout) -> Float[torch.Tensor, "window horizon"]:
        """The forecast in pixel values, of contexts [B, C] in pixel values."""
        import torch

        from tasks.models.visionts_image import drawn, read_off

        ids = torch.from_numpy(where.visible).to(steps.device)
        encoded = self._encoded(drawn(steps, where), ids.expand(len(steps), -1))
        masked = torch.ones(where.grid**2, dtype=torch.bool, device=steps.device)
        masked[ids] = False
        restore = torch.cat((ids, masked.nonzero()[:, 0])).argsort()  # patch -> its place among visible, then masked
        logits = self.network.decoder(encoded, restore.expand(len(steps), -1)).logits
        return read_off(logits, where, self.network.config.num_channels)

    def _encoded(self, patches: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """The encoder's normed answer [B, 1 + V, d]; ids: number of each patch [B, V], -1 in front where it is padding.

        What ViTMAEModel does where its noise puts the visible patches first. The channels are alike, so the patch
        embedding's weights are summed over them.
        """
        import torch
        from torch.nn import functional

        vit, device = self.network.vit, self.network.device
        patches, ids = patches.to(device), ids.to(device)
        weight, bias = (getattr(vit.embeddings.patch_embeddings.projection, name) for name in ("weight", "bias"))
        positions = vit.embeddings.position_embeddings[0]
        embedded = functional.linear(patches, weight.sum(dim=1).flatten(1), bias) + positions[1 + ids]
        start = (vit.embeddings.cls_token[0] + positions[:1]).expand(len(ids), 1, -1)
        before = (ids < 0).sum(dim=1, keepdim=True)  # rows of padding, which CLS comes after
        rows = torch.arange(1 + ids.shape[1], device=device)
        moved = torch.where(rows < before, rows + 1, torch.where(rows == before, 0, rows))
        states = torch.cat((start, embedded), dim=1).gather(1, moved[..., None].expand(-1, -1, embedded.shape[-1]))
        mask = None
        if bool((before > 0).any()):
            mask = torch.zeros(len(ids), 1, 1, len(rows), device=device)
            mask.masked_fill_((rows < before)[:, None, None], torch.finfo(mask.dtype).min)
        for block in vit.layers:
            states = block(states, mask)
        output: torch.Tensor = vit.layernorm(states)
        return output

    def _valued(self, observed: np.ndarray, where: Layout) -> np.ndarray:
        """Visible patches [W, V] that an observed step of contexts [W, C] is drawn on."""
        import torch

        from tasks.models.visionts_image import drawn

        found: np.ndarray = (drawn(torch.from_numpy(observed).float(), where, repeat=False) > 0).any(dim=-1).numpy()
        return found

    def _layouts(self, windows: Windows, start: Int32[np.ndarray, " window"]) -> list[Layout]:
        lengths = np.maximum(windows.context.shape[1] - start, 1).tolist()  # a context of nothing is one step of 0
        return [self._layout(one, windows.horizon, self._period(windows, one)) for one in lengths]

    def _full(self, windows: Windows) -> Layout:
        context = windows.context.shape[1]
        return self._layout(context, windows.horizon, self._period(windows, context))

    def _layout(self, length: int, horizon: int, period: int) -> Layout:
        from tasks.models.visionts_image import layout

        config = self.network.config
        return layout(length, horizon, period, grid=config.image_size // config.patch_size, patch=config.patch_size)

    def _period(self, windows: Windows, length: int) -> int:
        from tasks.models.visionts_image import period_of

        return int(self.network.config.periodicity or period_of(windows.freq, windows.season, length))

    def _training_period(self, context: int) -> int:
        import torch

        if self.network.config.periodicity:
            return int(self.network.config.periodicity)
        held = [period for period in TRAINED if 2 * period <= context] or [1]
        return held[int(torch.randint(len(held), ()))]


def _halved(context: np.ndarray) -> Int64[np.ndarray, " window"]:
    """The largest of C, C // 2, C // 4 ... and 1 that is no longer than each context [W, C] from its first step on."""
    steps = context.shape[1]
    halves = np.array(sorted({max(steps >> power, 1) for power in range(steps.bit_length())}))
    filled = np.where(np.isnan(context).all(axis=1), 1, steps - (~np.isnan(context)).argmax(axis=1))
    found: np.ndarray = halves[np.searchsorted(halves, filled, side="right") - 1]
    return found


def _grouped(wheres: list[Layout]) -> dict[Layout, np.ndarray]:
    """Layout -> the windows that have it."""
    found: dict[Layout, list[int]] = {}
    for number, where in enumerate(wheres):
        found.setdefault(where, []).append(number)
    return {where: np.array(numbers) for where, numbers in found.items()}
