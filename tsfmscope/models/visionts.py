"""VisionTS (Chen et al. 2025): a masked autoencoder fills in the right part of a series drawn as an image.

The network is transformers' ViTMAEForPreTraining, a ViT, so facebook/vit-mae-base loads. Its weights are
those that the authors use (mae_visualize_vit_base), never trained on a series. The code that draws images and
reads forecasts is ours, in visionts_image.py.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, cast

import numpy as np
from jaxtyping import Float, Float32, Int32

from tsfmscope.errors import ModelError
from tsfmscope.models import visionts_image as image
from tsfmscope.models import vit
from tsfmscope.models.base import Forecaster, Pretrained
from tsfmscope.models.common import checkpoint_folder
from tsfmscope.models.common.attention import AttentionLayer
from tsfmscope.models.common.capture import Pass, Stack
from tsfmscope.models.common.compression_block import with_compression_block
from tsfmscope.models.common.scale import HUGE, clip_float32
from tsfmscope.models.facts import APACHE, Package, Released, page
from tsfmscope.models.types import TokenKind, Tokens
from tsfmscope.series.types import Windows

if TYPE_CHECKING:
    import torch

REQUIRED = (
    *("image_size", "patch_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    *("decoder_hidden_size", "decoder_intermediate_size", "decoder_num_hidden_layers", "decoder_num_attention_heads"),
)
# layer_norm_eps is that of He et al. 2022's code.
DEFAULTS = {"layer_norm_eps": 1e-6, "initializer_range": 0.02, "periodicity": None}
# Base of the frequencies of the position encodings.
BASE = 10_000.0


class VisionTS(Pretrained, Forecaster):
    """VisionTS models.

    Rows of the encoder: CLS (kind REG), then one row per visible patch, row by row. The context is drawn on
    the visible patches.

    A window is drawn from its first observed step on, in columns of one period. The period is the config's
    periodicity, else the frequency's in the release, else the season. (The release can also try several on
    held-out steps.) Rows before CLS are PADDING and masked. A missing step repeats the one before, as in the
    release's evaluation. A patch without an observed step is PADDING, but attended to. The share of the image
    that a context gets depends on the horizon, and so do its tokens. MAE's random choice of masked patches is
    replaced by the right part of the image.

    The decoder is narrower than the encoder in every release. It is not a stack here, since an activation file has one
    width; its matrices are among the weights. The family forecasts points: every quantile is the same number.
    """

    name: ClassVar[str] = "visionts"
    released: ClassVar[Released] = Released(("facebook/vit-mae-base",), APACHE, page("facebook/vit-mae-base"))
    package: ClassVar[Package | None] = Package("transformers", "transformers")
    architectures: ClassVar[tuple[str, ...]] = ("ViTMAEForPreTraining",)
    example: ClassVar[Mapping[str, Any]] = {
        "hidden_size": 16, "intermediate_size": 24, "initializer_range": 0.2, "num_attention_heads": 2,
        "num_hidden_layers": 3, "image_size": 80, "patch_size": 4, "periodicity": 7, "decoder_hidden_size": 8,
        "decoder_intermediate_size": 12, "decoder_num_hidden_layers": 1, "decoder_num_attention_heads": 2,
    }  # fmt: skip
    stacks: ClassVar[tuple[str, ...]] = ("encoder",)
    width_key: ClassVar[str] = "hidden_size"
    mlp: ClassVar[Mapping[str, str]] = vit.MLP
    direct_quantiles: ClassVar[bool] = True
    output_modules: ClassVar[tuple[str, ...]] = ("decoder.decoder_pred",)
    # Rows are patches of an image: a period is a column of pixels.
    in_time_order: ClassVar[bool] = False
    plain_attention: ClassVar[bool] = True
    deviation_floor: ClassVar[float] = math.sqrt(image.VARIANCE)
    # transformers' ViTMAEForPreTraining.
    network: Any

    @classmethod
    def new(cls, config: Mapping[str, Any], *, seed: int) -> Self:
        """Return a model with random weights.

        Keys of the config are named as in ViTMAEConfig, except our periodicity (steps): all of REQUIRED, and
        those of DEFAULTS where they differ. ValueError for keys that are missing or unknown, and for a config
        that cannot be used.
        """
        full = checkpoint_folder.filled_config(config, REQUIRED, DEFAULTS, cls.name, _find_problem)
        return cls(checkpoint_folder.build(lambda: _make_network(full), seed))

    @classmethod
    def load(cls, folder: Path, *, device: str = "cpu", periodicity: int | None = None) -> Self:
        """Load a released or saved ViTMAEForPreTraining, safetensors only.

        periodicity: steps per column, where it is not the checkpoint's; `save` stores it. ModelError names
        the file that is wrong.
        """
        from transformers import ViTMAEForPreTraining

        folder = Path(folder)
        saved = checkpoint_folder.read_config(folder, cls.name)
        if periodicity is not None:
            saved["periodicity"] = periodicity
        with checkpoint_folder.limit_parameters(folder):
            wrong = _find_problem(saved)
        kind, classes, expected = saved.get("model_type"), saved.get("architectures"), list(cls.architectures)
        if kind != "vit_mae" or expected[0] not in (classes or []):
            problem = f"got model_type {kind!r}, architectures {classes}, expected 'vit_mae', {expected}"
            wrong = checkpoint_folder.of_other_family(problem, cls.name)
        if wrong:
            raise ModelError(f"{folder / 'config.json'}: {wrong}")
        network_class = with_compression_block(ViTMAEForPreTraining, cls.attention_layers)
        network = checkpoint_folder.load_network(network_class, folder, device)
        network.config.periodicity = saved.get("periodicity")
        return cls(network)

    @property
    def blocks(self) -> Mapping[str, Sequence[Any]]:
        """Blocks of the encoder and of the decoder."""
        return {"encoder": self.network.vit.layers, "decoder": self.network.decoder.decoder_layers}

    @classmethod
    def attention_layers(cls, network: Any) -> Iterator[AttentionLayer]:
        """Yield self-attention of the encoder's blocks, then of the decoder's."""
        yield from vit.vit_attentions("encoder", network.vit.layers)
        yield from vit.vit_attentions("decoder", network.decoder.decoder_layers)

    def rows_per_window(self, context: int, horizon: int) -> Mapping[str, int]:
        """Return the number of patches with an observed step.

        Where the config names no period, it is the smallest number over all frequencies.
        """
        fixed_period = self.network.config.periodicity
        periods = [1, *(steps for known in image.PERIODS.values() for steps in known if steps <= context)]
        layouts = {self._layout(context, horizon, period) for period in ([fixed_period] if fixed_period else periods)}
        observed = np.ones((1, context), bool)
        return {"encoder": min(int(self._observed_patches(observed, layout).sum()) for layout in layouts)}

    def loss(self, context: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
        """Return the Huber loss (delta 1) of the forecast in pixel values, the mean over observed steps.

        The authors fine-tune with squared error. Here one series that leaves its context's range would then
        outweigh the batch. So that a batch has few layouts, each context is cut to its last C, C / 2, C / 4
        ... steps, the most that it fills.

        The period is the config's. Where the config has none, each window has that of its own cut context
        (`estimate_periods`), since at inference the period is mostly the true one, and in columns of any other
        period the rows of the image do not continue. One window of five, chosen by torch's generator, has a
        random usual period instead, since the frequency of real data may be wrong or the data without a season.
        A period longer than a cut context becomes 1.
        """
        import torch
        from torch.nn import functional

        by_shown: dict[int, list[_TrainingGroup]] = defaultdict(list)
        for group in self._training_groups(context.cpu().numpy(), future.cpu().numpy()):
            by_shown[group.layout.shown].append(group)
        losses = []
        for groups in by_shown.values():
            answer = torch.cat(self._forecast_pixels([(group.steps, group.layout) for group in groups]))
            aim = torch.cat([group.target for group in groups])
            known = ~torch.isnan(aim)
            losses.append(functional.huber_loss(answer[known], aim[known], reduction="none"))
        errors = torch.cat(losses)
        return errors.sum() / max(len(errors), 1)

    def _tokenize(self, windows: Windows) -> Tokens:
        import torch

        inputs = image.to_pixel_values(windows.context)
        layouts = self._layouts(windows, inputs.start)
        context = windows.context.shape[1]
        full = self._layout(context, windows.horizon, self._period(windows, context))
        count, pixels = max(len(layout.visible) for layout in [*layouts, full]), layouts[0].patch ** 2
        patches = np.zeros((len(windows), count, pixels), dtype=np.float32)
        ids = np.full((len(windows), count), -1, dtype=np.int32)
        kinds = np.full((len(windows), 1 + count), TokenKind.PADDING, dtype=np.int8)
        for layout, at in _group_by_layout(layouts).items():
            rows, steps = slice(count - len(layout.visible), count), inputs.values[at, -layout.length :]
            patches[at, rows] = image.draw_patches(torch.from_numpy(steps), layout).numpy()
            ids[at, rows] = layout.visible
            valued = self._observed_patches(inputs.observed[at, -layout.length :], layout)
            kinds[at, 1 + rows.start :] = np.where(valued, TokenKind.OBSERVATION, TokenKind.PADDING)
            kinds[at, rows.start] = TokenKind.REG
        loc, scale = clip_float32(inputs.loc), clip_float32(inputs.scale)
        arrays = {"patches": patches, "ids": ids, "loc": loc, "scale": scale}
        return Tokens(arrays, {"encoder": kinds}, {}, windows.series, windows.origin)

    def _pass(self, tokens: Tokens) -> Pass:
        import torch

        vit = self.network.eval().vit
        patches, ids = tokens.arrays["patches"], tokens.arrays["ids"].astype(np.int64)

        def forward(part: slice) -> None:
            self._encode(torch.from_numpy(np.array(patches[part])), torch.from_numpy(ids[part]))

        queries = {"encoder": [block.attention.q_proj for block in vit.layers]}
        return Pass({"encoder": Stack(vit.layers, vit.layernorm)}, forward, queries)

    def _forecast(self, windows: Windows, levels: tuple[float, ...], samples: int, seeds: list[int]) -> np.ndarray:
        import torch

        self.network.eval()
        inputs = image.to_pixel_values(windows.context)
        point = np.empty((len(windows), windows.horizon))
        for layout, group in _group_by_layout(self._layouts(windows, inputs.start)).items():
            for first in range(0, len(group), self.batch):
                at = group[first : first + self.batch]
                steps = torch.from_numpy(inputs.values[at, -layout.length :]).to(self.network.device)
                with torch.inference_mode():
                    (pixels,) = self._forecast_pixels([(steps, layout)])
                point[at] = pixels.double().cpu().numpy()
        values = point * inputs.scale[:, None] + inputs.loc[:, None]
        return np.repeat(values[:, None], len(levels), axis=1)  # [W, Q, H]

    def _forecast_pixels(
        self, drawings: Sequence[tuple[torch.Tensor, image.Layout]]
    ) -> list[Float[torch.Tensor, "window horizon"]]:
        """Return the forecast in pixel values of each group of contexts [B, C] in pixel values.

        All layouts must have the same visible patches. The network then reads all groups in one pass, since
        only drawing and reading depend on the rest of a layout.
        """
        import torch

        first, device = drawings[0][1], self.network.device
        assert all(layout.shown == first.shown for _, layout in drawings)
        ids = torch.from_numpy(first.visible).to(device)
        patches = torch.cat([image.draw_patches(steps, layout) for steps, layout in drawings])
        encoded = self._encode(patches, ids.expand(len(patches), -1))
        masked = torch.ones(first.grid**2, dtype=torch.bool, device=device)
        masked[ids] = False
        # Patch -> its index when visible patches come first, then masked ones.
        restore = torch.cat((ids, masked.nonzero()[:, 0])).argsort()
        logits = self.network.decoder(encoded, restore.expand(len(patches), -1)).logits
        parts = logits.split([len(steps) for steps, _ in drawings])
        channels = self.network.config.num_channels
        return [image.read_off(part, layout, channels) for part, (_, layout) in zip(parts, drawings, strict=True)]

    def _encode(self, patches: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Return the encoder's normed output [B, 1 + V, d].

        ids: number of each patch [B, V], -1 for padding, which comes first. The computation is that of
        ViTMAEModel where its noise puts the visible patches first. The channels are equal, so the patch
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
        # Rows of padding, which come before CLS.
        before = (ids < 0).sum(dim=1, keepdim=True)
        rows = torch.arange(1 + ids.shape[1], device=device)
        order = torch.where(rows < before, rows + 1, torch.where(rows == before, 0, rows))
        states = torch.cat((start, embedded), dim=1).gather(1, order[..., None].expand(-1, -1, embedded.shape[-1]))
        mask = None
        if bool((before > 0).any()):
            mask = torch.zeros(len(ids), 1, 1, len(rows), device=device)
            mask.masked_fill_((rows < before)[:, None, None], torch.finfo(mask.dtype).min)
        for block in vit.layers:
            states = block(states, mask)
        return cast("torch.Tensor", vit.layernorm(states))

    def _observed_patches(self, observed: np.ndarray, layout: image.Layout) -> np.ndarray:
        """Return which visible patches [W, V] an observed step of contexts [W, C] is drawn on."""
        import torch

        drawn = image.draw_patches(torch.from_numpy(observed).float(), layout, repeat=False)
        return np.asarray((drawn > 0).any(dim=-1))

    def _layouts(self, windows: Windows, start: Int32[np.ndarray, " window"]) -> list[image.Layout]:
        # A context without observed steps is drawn as one step of 0.
        lengths = np.maximum(windows.context.shape[1] - start, 1).tolist()
        return [self._layout(length, windows.horizon, self._period(windows, length)) for length in lengths]

    def _layout(self, length: int, horizon: int, period: int) -> image.Layout:
        size, patch = self.network.config.image_size, self.network.config.patch_size
        return image.make_layout(length, horizon, period, grid=size // patch, patch=patch)

    def _period(self, windows: Windows, length: int) -> int:
        return int(self.network.config.periodicity or image.find_period(windows.freq, windows.season, length))

    def _training_groups(self, past: np.ndarray, later: np.ndarray) -> Iterator[_TrainingGroup]:
        """Yield the windows of a batch, contexts [B, C] and futures [B, H], by cut length and period."""
        import torch

        lengths, device = image.largest_filled_context(past), self.network.device
        periods = image.choose_periods(past, lengths, self.network.config.periodicity)
        for length in np.unique(lengths).tolist():
            rows = np.flatnonzero(lengths == length)
            inputs = image.to_pixel_values(past[rows, -length:])
            target = (later[rows] - inputs.loc[:, None]) / inputs.scale[:, None]
            target = target.clip(-HUGE, HUGE).astype(np.float32)
            for period in np.unique(periods[rows]).tolist():
                at = periods[rows] == period
                yield _TrainingGroup(
                    torch.from_numpy(inputs.values[at]).to(device),
                    self._layout(length, later.shape[1], period),
                    torch.from_numpy(target[at]).to(device),
                )


class _TrainingGroup(NamedTuple):
    """Windows of one layout: contexts [B, C] and futures [B, H] in pixel values, the latter NaN where missing."""

    steps: torch.Tensor
    layout: image.Layout
    target: torch.Tensor


def _group_by_layout(layouts: list[image.Layout]) -> dict[image.Layout, np.ndarray]:
    """Return layout -> the windows that have it."""
    numbers_by_layout: dict[image.Layout, list[int]] = defaultdict(list)
    for number, layout in enumerate(layouts):
        numbers_by_layout[layout].append(number)
    return {layout: np.array(numbers) for layout, numbers in numbers_by_layout.items()}


def _make_network(config: Mapping[str, Any]) -> Any:
    """Return a new network with random CLS and mask tokens.

    Positions are the fixed sines and cosines, which transformers 5 leaves at 0.
    """
    import torch
    from transformers import ViTMAEConfig, ViTMAEForPreTraining

    network = ViTMAEForPreTraining(ViTMAEConfig(**config))
    embeddings, decoder, std = network.vit.embeddings, network.decoder, config["initializer_range"]
    with torch.no_grad():
        for fixed in (embeddings.position_embeddings, decoder.decoder_pos_embed):
            grid = config["image_size"] // config["patch_size"]
            fixed.copy_(torch.from_numpy(positions_2d(grid, fixed.shape[-1])))
        for parameter in (embeddings.cls_token, decoder.mask_token):
            parameter.normal_(std=std)
    return network


def positions_2d(grid: int, width: int) -> Float32[np.ndarray, "1 token width"]:
    """Return fixed positions of CLS (0) and of the patches, row by row.

    They are sines and cosines of the column, then of the row, as in He et al. 2022's code, whose variable
    names suggest the opposite order.
    """
    frequencies = BASE ** -(np.arange(width // 4) / (width // 4))
    rows, columns = np.divmod(np.arange(grid**2), grid)
    angles = [np.outer(places, frequencies) for places in (columns, rows)]
    patches = np.concatenate([part for angle in angles for part in (np.sin(angle), np.cos(angle))], axis=1)
    return np.concatenate((np.zeros((1, width)), patches))[None].astype(np.float32)


def _find_problem(config: Mapping[str, Any]) -> str | None:
    """Return why a config cannot be used, or None."""
    size, patch, period = config.get("image_size", 224), config.get("patch_size", 16), config.get("periodicity")
    if config.get("norm_pix_loss"):
        return "got norm_pix_loss true, expected a model that reconstructs pixels, as patches have no scale otherwise"
    if not (isinstance(size, int) and isinstance(patch, int)) or size % patch or size < 2 * patch:
        return f"got image_size {size!r}, patch_size {patch!r}, expected a square of 2 x 2 whole patches or more"
    if period is not None and (type(period) is not int or period < 1):
        return f"got periodicity {period!r}, expected steps or null"
    if wrong := [name for name in ("hidden_size", "decoder_hidden_size") if config.get(name, 4) % 4]:
        return f"got {wrong[0]} {config[wrong[0]]}, expected a multiple of 4, for sines and cosines of two axes"
    return None
