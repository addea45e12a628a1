"""Moirai 1.0-R (Woo et al. 2024) of uni2ts: patches and mask tokens of one series in an encoder, a mixture a step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from jaxtyping import Float

from tasks.errors import HealthError
from tasks.models import moirai_checkpoint
from tasks.models.attention import AttentionLayer
from tasks.models.base import Forecaster
from tasks.models.capture import Pass, Stack
from tasks.models.moirai_patches import RANGES, Packed, pack, patch_range
from tasks.models.scale import saturated
from tasks.models.types import TokenKind, Tokens, WeightMatrix
from tasks.series.types import Windows

if TYPE_CHECKING:
    import torch

MIN_PATCHES = 2  # of a training context: uni2ts, cli/conf/pretrain/model/moirai_small.yaml


class Moirai(Forecaster):
    """Rows of the encoder: one a context patch, then one a future patch, which reads the mask embedding only (MASK).

    As in the package, a missing step of the context is 0 before scaling. Patches before the first observed step are
    PADDING and cut off; a later patch with no observed step is PADDING too, since it stands for no value, but it is
    attended to. Scaling is done in float64 (the package rounds loc and scale to float32 first).
    """

    name: ClassVar[str] = "moirai"
    stacks: ClassVar[tuple[str, ...]] = ("encoder",)
    network: Any  # uni2ts' MoiraiModule

    def __init__(self, network: Any, config: Mapping[str, Any], *, batch: int = 64) -> None:
        """Wrap a MoiraiModule made of `config`; batch: windows a forward pass."""
        self.network = network.eval()
        self.config = dict(config)
        self.batch = batch

    @classmethod
    def new(cls, config: Mapping[str, Any], *, seed: int) -> Self:
        """Random weights. Keys, named as MoiraiModule's, and our patch_size: those of `moirai_checkpoint`."""
        return cls(*moirai_checkpoint.new_network(config, seed))

    @classmethod
    def load(cls, folder: Path, *, device: str = "cpu") -> Self:
        """A released or saved checkpoint, safetensors only. ModelError names the file that is wrong."""
        return cls(*moirai_checkpoint.load_network(Path(folder), device))

    def save(self, folder: Path) -> None:
        """config.json and model.safetensors, which `MoiraiModule.from_pretrained` reads."""
        moirai_checkpoint.save_network(self.network, self.config, Path(folder))

    @property
    def layers(self) -> Mapping[str, int]:
        """Blocks of the encoder."""
        return {"encoder": len(self.network.encoder.layers)}

    @property
    def width(self) -> int:
        """d_model."""
        return int(self.network.d_model)

    def patch_size(self, freq: str) -> int:
        """Steps of a patch: the config's patch_size, else the checkpoint's smallest in the frequency's range.

        The package draws among those of the range in training and leaves the choice to its user, or to the loss on the
        end of the context (`auto`), in forecasting; the smallest gives most tokens. Where the checkpoint has none in
        the range, the nearest below it, else its smallest.
        """
        sizes = sorted(self.network.patch_sizes)
        if self.config["patch_size"] is not None:
            return int(self.config["patch_size"])
        first, last = patch_range(freq)
        inside = [size for size in sizes if first <= size <= last]
        return int(inside[0] if inside else max((size for size in sizes if size < first), default=sizes[0]))

    def rows_per_window(self, context: int, horizon: int) -> Mapping[str, int]:
        """Patches of the context, of the smallest size that a frequency can have; the future's rows are masks."""
        return {"encoder": -(-context // min(self.patch_size(freq) for freq in ("", *RANGES)))}

    def weights(self) -> Iterator[WeightMatrix]:
        """q, k, v, o (self), mlp_in, mlp_gate (before the SiLU), mlp_out; `layer` counts from 1."""
        for layer, block in enumerate(self.network.encoder.layers, start=1):
            attention, ffn = block.self_attn, block.ffn
            projections = {"q": attention.q_proj, "k": attention.k_proj, "v": attention.v_proj, "o": attention.out_proj}
            for what, module in projections.items():
                yield WeightMatrix("encoder", layer, what, "self", attention.num_heads, _matrix(module))
            for what, module in (("mlp_in", ffn.fc1), ("mlp_gate", ffn.fc_gate), ("mlp_out", ffn.fc2)):
                yield WeightMatrix("encoder", layer, what, None, None, _matrix(module))

    def attentions(self) -> Iterator[AttentionLayer]:
        """Self-attention of the encoder; queries and keys are normed and rotated."""
        return moirai_checkpoint.attentions(self.network)

    def loss(self, context: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
        """The package's PackedNLLLoss in the data's units; missing steps weigh nothing.

        The patch size is one a batch: the config's, else drawn, as in the package's training, from those of which the
        context holds MIN_PATCHES, by torch's generator.
        """
        import torch
        from torch.utils._pytree import tree_map
        from uni2ts.loss.packed import PackedNLLLoss

        size = self._training_size(context.shape[1])
        packed = self._packed(context.cpu().numpy(), future.cpu().numpy(), size)
        parameters = tree_map(_without_nan_gradient, self._parameters(packed, slice(None)))
        distribution = self.network.distr_output.distribution(parameters, validate_args=False)
        target, observed, sample = (
            torch.from_numpy(part[:, packed.start :]).to(self._device)
            for part in (packed.patches, packed.observed, packed.sample_id)
        )
        scale = torch.from_numpy(saturated(packed.scale)).to(self._device)[:, None, None]
        losses = scale.log() - distribution.log_prob(target)
        loss: torch.Tensor = PackedNLLLoss().reduce_loss(
            losses, torch.ones_like(sample, dtype=torch.bool), observed, sample, torch.zeros_like(sample)
        )
        return loss

    def _tokenize(self, windows: Windows) -> Tokens:
        unknown = np.full_like(windows.future, np.nan)
        packed = self._packed(windows.context, unknown, self.patch_size(windows.freq))
        kinds = np.where(packed.observed.any(axis=-1), TokenKind.OBSERVATION, TokenKind.PADDING).astype(np.int8)
        kinds[:, packed.start :] = TokenKind.MASK
        return Tokens(
            arrays={
                "patches": packed.patches,
                "masks": packed.observed,
                "sample_id": packed.sample_id,
                "time_id": packed.time_id,
                "loc": saturated(packed.loc),
                "scale": saturated(packed.scale),
            },
            kinds={"encoder": kinds},
            types={},
            series=windows.series,
            origin=windows.origin,
        )

    def _pass(self, tokens: Tokens) -> Pass:
        arrays, encoder = tokens.arrays, self.network.eval().encoder
        start = int((tokens.kinds["encoder"] != TokenKind.MASK).all(axis=0).sum())
        packed = Packed(
            arrays["patches"],
            arrays["masks"],
            arrays["sample_id"],
            arrays["time_id"],
            arrays["loc"],
            arrays["scale"],
            start,
        )

        def forward(part: slice) -> None:
            self._encoded(packed, part)

        return Pass({"encoder": Stack(encoder.layers, encoder.norm)}, forward)

    def _forecast(self, windows: Windows, levels: tuple[float, ...], samples: int, seeds: list[int]) -> np.ndarray:
        import torch

        self.network.eval()
        unknown = np.full_like(windows.future, np.nan)
        packed = self._packed(windows.context, unknown, self.patch_size(windows.freq))
        paths = []
        for first in range(0, len(windows), self.batch):
            part = slice(first, first + self.batch)
            with torch.inference_mode():
                parameters = self._parameters(packed, part)
                paths += self._draws(parameters, samples, seeds[part])
        scaled = np.stack(paths)[:, :, : windows.horizon].astype(np.float64)  # [W, S, H]
        quantiles = np.moveaxis(np.quantile(scaled, levels, axis=1), 0, 1)
        values: np.ndarray = quantiles * packed.scale[:, None, None] + packed.loc[:, None, None]
        return values

    def _draws(self, parameters: Any, samples: int, seeds: list[int]) -> list[Float[np.ndarray, "sample step"]]:
        """Sample paths of each window, in scaled units, drawn on the CPU from the window's own seed.

        Draws that float32 cannot hold (of a log-normal, say) are its largest number.
        """
        import torch
        from torch.utils._pytree import tree_leaves, tree_map

        output, paths = self.network.distr_output, []
        parameters = tree_map(lambda leaf: leaf.cpu(), parameters)
        if not all(torch.isfinite(leaf).all() for leaf in tree_leaves(parameters)):
            raise HealthError(f"{self.name}: the head's parameters hold NaN or infinity; check weights and inputs")
        with torch.random.fork_rng(devices=[]):
            for row, seed in enumerate(seeds):
                torch.default_generator.manual_seed(seed)
                one = tree_map(lambda leaf, row=row: leaf[row], parameters)
                drawn = output.distribution(one, validate_args=False).sample((samples,))  # [S, T, P]
                paths.append(torch.nan_to_num(drawn, nan=torch.nan).flatten(1).numpy())
        return paths

    def _parameters(self, packed: Packed, part: slice) -> Any:
        """The mixture's parameters at the future's steps, in scaled units: the package's tree of [B, T, P] tensors."""
        from torch.utils._pytree import tree_map

        encoded, sizes = self._encoded(packed, part)
        parameters = self.network.param_proj(encoded[:, packed.start :], sizes[:, packed.start :])
        return tree_map(lambda leaf: leaf[:, :, : packed.patches.shape[-1]], parameters)

    def _encoded(self, packed: Packed, part: slice) -> tuple[torch.Tensor, torch.Tensor]:
        """The encoder's answer [B, T, d] to windows that are scaled already, and the patch sizes [B, T].

        What `MoiraiModule.forward` does between its scaler and its heads.
        """
        import torch
        from uni2ts.common.torch_util import mask_fill, packed_attention_mask

        network, device = self.network, self._device
        patches = torch.from_numpy(np.array(packed.patches[part])).to(device)
        sample, time = (
            torch.from_numpy(ids[part].astype(np.int64)).to(device) for ids in (packed.sample_id, packed.time_id)
        )
        sizes = torch.full_like(sample, patches.shape[-1])
        masked = torch.zeros_like(sample, dtype=torch.bool)
        masked[:, packed.start :] = True
        padded = torch.nn.functional.pad(patches, (0, max(network.patch_sizes) - patches.shape[-1]))
        embedded = mask_fill(network.in_proj(padded, sizes), masked, network.mask_encoding.weight)
        attended = packed_attention_mask(sample)
        return network.encoder(embedded, attended, time_id=time, var_id=torch.zeros_like(sample)), sizes

    def _packed(self, context: np.ndarray, future: np.ndarray, size: int) -> Packed:
        minimum = self.network.scaler.minimum_scale if self.network.scaling else None
        return pack(context, future, size=size, minimum_scale=minimum)

    def _training_size(self, context: int) -> int:
        """One of the patch sizes of which `context` holds MIN_PATCHES, else the smallest."""
        import torch

        sizes = sorted(self.network.patch_sizes)
        if self.config["patch_size"] is not None:
            return int(self.config["patch_size"])
        usable = [size for size in sizes if size * MIN_PATCHES <= context] or sizes[:1]
        return int(usable[int(torch.randint(len(usable), ()))])

    @property
    def _device(self) -> torch.device:
        device: torch.device = self.network.mask_encoding.weight.device
        return device


def _without_nan_gradient(leaf: torch.Tensor) -> torch.Tensor:
    """The leaf, with NaN in its gradient read as 0.

    Where a step lies outside a component's support, the package takes the density of a sample instead and discards it;
    the gradient is 0, but NaN is what comes where that sample is infinite.
    """
    import torch

    if leaf.requires_grad:
        leaf.register_hook(torch.nan_to_num)
    return leaf


def _matrix(module: Any) -> np.ndarray:
    matrix: np.ndarray = module.weight.detach().float().cpu().numpy()
    return matrix
