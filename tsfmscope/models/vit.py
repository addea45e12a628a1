"""ViT (Dosovitskiy et al. 2021) of transformers: patches of an image, trained by filling in masked ones."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from jaxtyping import Float32

from tsfmscope.errors import ModelError
from tsfmscope.models.base import Pretrained
from tsfmscope.models.common import checkpoint_folder
from tsfmscope.models.common.attention import PARTS, AttentionLayer, layers_of_blocks, resizer
from tsfmscope.models.common.capture import Pass, Stack
from tsfmscope.models.common.compression_block import with_compression_block
from tsfmscope.models.facts import Package
from tsfmscope.models.types import TokenKind, Tokens
from tsfmscope.series.types import Windows

if TYPE_CHECKING:
    import torch

REQUIRED = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "image_size", "patch_size")
# Defaults of ViTConfig.
DEFAULTS = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "initializer_range": 0.02}
MASKED_IMAGE_MODELING = "ViTForMaskedImageModeling"
LOADABLE = (MASKED_IMAGE_MODELING, "ViTForImageClassification", "ViTModel")
# Share of patches masked in training: SimMIM (Xie et al. 2022, section 4.1).
MASKED_SHARE = 0.6
# Projection -> its name in an attention module.
MLP = {"mlp.fc1": "mlp_in", "mlp.fc2": "mlp_out"}
PROCESSOR = "preprocessor_config.json"
# Mean and deviation of pixels in 0..1, per channel, as in google/vit-*.
MEAN, DEVIATION = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)
LARGEST_PIXEL = 255.0


class ViT(Pretrained):
    """ViT models of images.

    Rows of the encoder: CLS (kind REG), then one row per patch, row by row.

    A window is an image where its context begins one, as data sets of source `images` give them: the number
    of columns, then the pixels row by row, red, green, blue, 0..255. The last value is the future. Any other
    window is PADDING throughout, and so is an image with another number of columns than the first image.

    The network reads pixels that are resized to its image size (bilinear, antialiased), then normalised by
    `image_mean` and `image_std` of the folder's preprocessor_config.json. A missing pixel is that mean. A
    patch without an observed pixel is PADDING, and attended to all the same.
    """

    name = "vit"
    package = Package("transformers", "transformers")
    architectures = ("ViTForImageClassification", "ViTForMaskedImageModeling", "ViTModel")
    example: ClassVar[Mapping[str, Any]] = {
        "hidden_size": 16, "intermediate_size": 24, "initializer_range": 0.2, "num_attention_heads": 2,
        "num_hidden_layers": 3, "image_size": 8, "patch_size": 2,
    }  # fmt: skip
    stacks = ("encoder",)
    width_key = "hidden_size"
    mlp: ClassVar[Mapping[str, str]] = MLP
    modality = "image"
    plain_attention = True

    def __init__(
        self, network: Any, *, mean: tuple[float, ...] = MEAN, deviation: tuple[float, ...] = DEVIATION, batch: int = 32
    ) -> None:
        """Wrap a ViTForMaskedImageModeling, or a ViTModel, which cannot be trained here.

        mean, deviation: of a pixel's channels in 0..1. batch: images per forward pass.
        """
        super().__init__(network, batch=batch)
        self._mean, self._deviation = mean, deviation

    @classmethod
    def new(cls, config: Mapping[str, Any], *, seed: int) -> Self:
        """Return a model with random weights.

        Keys of the config are named as in ViTConfig: all of REQUIRED, and those of DEFAULTS where they
        differ. ValueError for keys that are missing or unknown, and for an image that is not whole patches.
        """
        from transformers import ViTConfig, ViTForMaskedImageModeling

        full = checkpoint_folder.filled_config(config, REQUIRED, DEFAULTS, cls.name)
        if full["image_size"] % full["patch_size"]:
            raise ValueError(
                f"{cls.name} config: image_size: got {full['image_size']}, expected whole patches of "
                f"{full['patch_size']} pixels"
            )
        vit_config = ViTConfig(**full, encoder_stride=full["patch_size"])
        return cls(checkpoint_folder.build(lambda: ViTForMaskedImageModeling(vit_config), seed))

    @classmethod
    def load(cls, folder: Path, *, device: str = "cpu") -> Self:
        """Load a released or saved ViT, safetensors only.

        A head for anything but masked images is left out. ModelError names the file that is wrong.
        """
        import transformers

        folder = Path(folder)
        config = checkpoint_folder.read_config(folder, cls.name)
        kind = next(iter(config.get("architectures") or ["ViTModel"]))
        if config.get("model_type") != "vit" or kind not in LOADABLE:
            problem = (
                f"{folder / 'config.json'}: got model_type {config.get('model_type')!r}, architecture {kind!r}, "
                f"expected 'vit' and one of {list(LOADABLE)}"
            )
            raise ModelError(checkpoint_folder.of_other_family(problem, cls.name))
        mean, deviation = _read_processor(folder)
        has_decoder = kind == MASKED_IMAGE_MODELING
        network_class = transformers.ViTForMaskedImageModeling if has_decoder else transformers.ViTModel
        options = {} if has_decoder else {"add_pooling_layer": False}
        network = checkpoint_folder.load_network(
            with_compression_block(network_class, cls.attention_layers, **options), folder, device
        )
        return cls(network, mean=mean, deviation=deviation)

    def save(self, folder: Path) -> None:
        """Write config.json, model.safetensors and preprocessor_config.json, which transformers reads."""
        super().save(folder)
        pixels = {"image_mean": list(self._mean), "image_std": list(self._deviation), "rescale_factor": 1 / 255}
        size = {"height": self._size, "width": self._size}
        processor = {"image_processor_type": "ViTImageProcessor", "size": size, "resample": 2, **pixels}
        (Path(folder) / PROCESSOR).write_text(json.dumps(processor, indent=2) + "\n")

    @property
    def blocks(self) -> Mapping[str, Sequence[Any]]:
        """Blocks of the encoder."""
        return {"encoder": self._vit.layers}

    @classmethod
    def attention_layers(cls, network: Any) -> Iterator[AttentionLayer]:
        """Yield self-attention of every block; scores are q·k over the root of the original head's width."""
        return vit_attentions("encoder", getattr(network, "vit", network).layers)

    def rows_per_window(self, context: int, horizon: int) -> Mapping[str, int]:
        """Return the number of patches, 0 where the context cannot be an image."""
        return {"encoder": 0 if context % 3 or horizon != 1 else self._patches**2}

    def stock_model(self) -> Any:
        """Return the transformers network."""
        return self.network

    def loss(self, context: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
        """Return the package's own loss of masked images: the mean error of masked patches' normed pixels.

        In every image, MASKED_SHARE of the patches are masked, by torch's generator, as dropout is.
        ValueError where the windows are not images of one shape, or the network was loaded without a head for
        masked images.
        """
        import torch

        values = torch.cat((context, future), dim=1).cpu().numpy()
        columns = set(_columns(values).tolist())
        if self._vit is self.network or len(columns) != 1 or 0 in columns:
            raise ValueError(
                f"{self.name}: got {type(self.network).__name__} and images of {sorted(columns)} columns, expected "
                f"{MASKED_IMAGE_MODELING} and whole ones of one shape"
            )
        pixels = torch.from_numpy(_planes(values, columns.pop()))
        order = torch.rand(len(context), self._patches**2).argsort(dim=1)
        masked = (order < max(1, round(MASKED_SHARE * order.shape[1]))).to(self.network.device)
        loss: torch.Tensor = self.network(self._resize_pixels(pixels), bool_masked_pos=masked).loss
        return loss

    @property
    def _vit(self) -> Any:
        return getattr(self.network, "vit", self.network)

    @property
    def _size(self) -> int:
        return int(self.network.config.image_size)

    @property
    def _patches(self) -> int:
        """Number of patches per side."""
        return self._size // int(self.network.config.patch_size)

    def _tokenize(self, windows: Windows) -> Tokens:
        values = np.concatenate((windows.context, windows.future[:, :1]), axis=1)
        columns = np.where(windows.origin == windows.context.shape[1], _columns(values), 0) * (windows.horizon == 1)
        width = next((column_count for column_count in columns.tolist() if column_count), 0)
        is_image = columns == (width or -1)
        planes = _planes(values[is_image], width) if width else np.empty((0, 3, 1, 1), np.float32)
        pixels = np.full((len(windows), *planes.shape[1:]), np.nan, dtype=np.float32)
        pixels[is_image] = planes
        kinds = np.full((len(windows), 1 + self._patches**2), TokenKind.PADDING, dtype=np.int8)
        kinds[:, 0] = TokenKind.REG
        kinds[:, 1:][self._has_observed_pixel(pixels)] = TokenKind.OBSERVATION
        return Tokens({"pixels": pixels}, {"encoder": kinds}, {}, windows.series, windows.origin)

    def _pass(self, tokens: Tokens) -> Pass:
        import torch

        vit = self._vit.eval()

        def forward(part: slice) -> None:
            vit(self._resize_pixels(torch.from_numpy(np.array(tokens.arrays["pixels"][part]))))

        queries = {"encoder": [block.attention.q_proj for block in vit.layers]}
        return Pass({"encoder": Stack(vit.layers, vit.layernorm)}, forward, queries)

    def _has_observed_pixel(self, pixels: Float32[np.ndarray, "image 3 row column"]) -> np.ndarray:
        """Return whether a patch [W, T] has an observed pixel."""
        import torch

        is_observed = torch.from_numpy(~np.isnan(pixels).any(axis=1, keepdims=True)).float()
        grown = torch.nn.functional.adaptive_max_pool2d(is_observed, self._patches)
        return grown.flatten(1).numpy() > 0

    def _resize_pixels(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return pixels [B, 3, n, n] as the network reads them, missing ones at the mean."""
        import torch

        mean, deviation = (torch.tensor(part).view(3, 1, 1) for part in (self._mean, self._deviation))
        pixels = torch.where(torch.isnan(pixels), mean * LARGEST_PIXEL, pixels.clamp(0, LARGEST_PIXEL))
        size = (self._size, self._size)
        if pixels.shape[2:] != size:
            pixels = torch.nn.functional.interpolate(pixels, size=size, mode="bilinear", antialias=True)
        return ((pixels / LARGEST_PIXEL - mean) / deviation).to(self.network.device)


def vit_attentions(stack: str, blocks: Iterable[Any]) -> Iterator[AttentionLayer]:
    """Yield the attention layers of blocks of transformers' ViT or ViTMAE."""
    resize = resizer(PARTS, "head_dim")
    return layers_of_blocks(
        stack, blocks, "attention", PARTS, heads="num_attention_heads", scale="scaling", resize=resize
    )


def _columns(values: np.ndarray) -> np.ndarray:
    """Return the columns of each window's image [W, 1 + 3 * H * columns], 0 for other windows."""
    head, cells = values[:, 0].astype(np.float64), values.shape[1] - 1
    possible = (head >= 1) & (head * 3 <= cells) & (head == np.floor(head))
    divisors = np.where(possible, head, 1).astype(np.int64)
    return np.where(possible & (cells % (3 * divisors) == 0), divisors, 0)


def _planes(values: np.ndarray, columns: int) -> Float32[np.ndarray, "image 3 row column"]:
    """Return images [W, 1 + 3 * H * columns], stored with channels last, as planes."""
    shaped = values[:, 1:].reshape(len(values), -1, columns, 3).transpose(0, 3, 1, 2)
    return np.ascontiguousarray(shaped, dtype=np.float32)


def _read_processor(folder: Path) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return image_mean and image_std of the folder, or those of google/vit-* where it has none."""
    path = folder / PROCESSOR
    if not path.is_file():
        return MEAN, DEVIATION
    try:
        block = json.loads(path.read_text())
        mean, deviation = (
            tuple(map(float, block.get(key, usual))) for key, usual in (("image_mean", MEAN), ("image_std", DEVIATION))
        )
    except (ValueError, TypeError, AttributeError) as error:
        raise checkpoint_folder.broken_checkpoint(f"{path}: not a processor's config ({error})") from error
    if len(mean) != 3 or len(deviation) != 3 or not all(math.isfinite(v) for v in mean) or not min(deviation) > 0:
        raise ModelError(f"{path}: got mean {mean}, deviation {deviation}, expected three numbers each; fetch it again")
    return mean, deviation
