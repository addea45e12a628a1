"""Moirai 1.0-R and 1.1-R (Woo et al. 2024) of uni2ts: an encoder over patches and mask tokens of one series.

It predicts a mixture distribution for each step.
"""

from __future__ import annotations

import importlib
import inspect
import json
import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from jaxtyping import Float

from tsfmscope.errors import HealthError, ModelError
from tsfmscope.extras import describe_missing
from tsfmscope.models.base import BlockFamily, Forecaster
from tsfmscope.models.common import checkpoint_folder, own_checkpoint
from tsfmscope.models.common.attention import BLOCK, PARTS, AttentionLayer, layers_of_blocks
from tsfmscope.models.common.capture import Pass, Stack
from tsfmscope.models.common.compression_block import apply_block, config_block
from tsfmscope.models.common.scale import clip_float32
from tsfmscope.models.facts import Package, Released, page
from tsfmscope.models.moirai_patches import MINIMUM_SCALE, RANGES, Packed, pack, patch_range
from tsfmscope.models.types import PackageForecast, TokenKind, Tokens
from tsfmscope.series.types import Windows

if TYPE_CHECKING:
    import torch

# Prefix of every `_target_`.
DISTRIBUTIONS = "uni2ts.distribution."
# Woo et al. 2024, section 3.1.3; uni2ts, cli/conf/pretrain/model/moirai_small.yaml.
MIXTURE = {
    "_target_": f"{DISTRIBUTIONS}mixture.MixtureOutput",
    "components": [
        {"_target_": f"{DISTRIBUTIONS}student_t.StudentTOutput"},
        {"_target_": f"{DISTRIBUTIONS}normal.NormalFixedScaleOutput", "scale": 1e-3},
        {"_target_": f"{DISTRIBUTIONS}negative_binomial.NegativeBinomialOutput"},
        {"_target_": f"{DISTRIBUTIONS}log_normal.LogNormalOutput"},
    ],
}
# Largest number of patches, layers or neurons in a config; the released models have up to 512 patches.
LARGEST_COUNT = 65_536
# Width of a head. uni2ts makes d_model // 64 heads, and rotates pairs in half of each.
HEAD_WIDTH = 64
# Least number of patches in a training context: uni2ts, cli/conf/pretrain/model/moirai_small.yaml.
MIN_PATCHES = 2


def package_class(module: str, name: str, family: str) -> Any:
    """Return a class of uni2ts. Raises ModelError, which names the extra, if the package is missing."""
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        raise ModelError(f"family {family}: {describe_missing(error)}") from error


def _distribution(config: Any) -> Any:
    """Return a distribution of uni2ts from its config, whose options are numbers or lists of distributions.

    uni2ts itself checks only the prefix of `_target_` and lets hydra resolve the dotted name, in every object of the
    config. Such a name can lead out of the package, through the imports of its modules.
    Raises ValueError, which names the key, for any other `_target_` or option.
    """
    from uni2ts import distribution

    target = config.get("_target_") if isinstance(config, Mapping) else None
    name = str(target).rpartition(".")[2]
    if not str(target).startswith(DISTRIBUTIONS) or name not in distribution.DISTRIBUTION_OUTPUTS:
        raise ValueError(
            f"distr_output: got _target_ {target!r:.100}, expected {DISTRIBUTIONS}*, one of "
            f"{sorted(distribution.DISTRIBUTION_OUTPUTS)}"
        )
    distribution_class = getattr(distribution, name)
    options = {key: value for key, value in config.items() if key != "_target_"}
    known = inspect.signature(distribution_class).parameters
    for key, value in options.items():
        if key not in known:
            expected = sorted(known) or "none"
            raise ValueError(f"distr_output: {name}: got unknown option {key!r:.100}, expected {expected}")
        if key == "components" and isinstance(value, list | tuple):
            options[key] = [_distribution(part) for part in value]
        elif not isinstance(value, int | float):
            raise ValueError(f"distr_output: {name}: {key}: got {value!r:.100}, expected a number")
    return distribution_class(**options)


def find_common_problem(config: Mapping[str, Any], counts: tuple[str, ...]) -> str | None:
    """Return the reason why keys that all versions have are unusable, or None; counts: keys of whole numbers."""
    for key in counts:
        if type(config[key]) is not int or not 1 <= config[key] <= LARGEST_COUNT:
            return f"got {key} {config[key]!r}, expected a whole number from 1 to {LARGEST_COUNT}"
    if type(config["scaling"]) is not bool:
        return f"got scaling {config['scaling']!r}, expected true or false"
    dropout = config["dropout_p"]
    if not isinstance(dropout, int | float) or not 0 <= dropout < 1:
        return f"got dropout_p {dropout!r}, expected a number from 0 to below 1"
    width = config["d_model"]
    heads = width // HEAD_WIDTH if type(width) is int else 0
    if heads < 1 or width % heads or width // heads % 4:
        return f"got d_model {width!r}, expected a multiple of {HEAD_WIDTH}: uni2ts makes a head of each {HEAD_WIDTH}"
    return None


class MoiraiFamily(BlockFamily, Forecaster):
    """A version of Moirai, whose network is one of uni2ts.

    required: keys of its config without a default. defaults: values of the other keys. stored: further keys that a
    checkpoint's config.json must have. pipeline: module and class of uni2ts that forecast with the network.
    """

    requires = ("uni2ts",)
    mlp: ClassVar[Mapping[str, str]] = {"ffn.fc1": "mlp_in", "ffn.fc_gate": "mlp_gate", "ffn.fc2": "mlp_out"}
    required: ClassVar[tuple[str, ...]]
    defaults: ClassVar[Mapping[str, Any]]
    stored: ClassVar[tuple[str, ...]]
    pipeline: ClassVar[tuple[str, str]]
    deviation_floor = math.sqrt(MINIMUM_SCALE)

    def __init__(self, network: Any, config: Mapping[str, Any], *, batch: int = 64) -> None:
        """Wrap a network of uni2ts that was made from `config`; batch: windows per forward pass."""
        self.network = network.eval()
        self.config = dict(config)
        self.batch = batch

    @classmethod
    def new(cls, config: Mapping[str, Any], *, seed: int) -> Self:
        """Return a model with random weights.

        config: the `required` keys, and any of `defaults`; they are named as the arguments of the network's class.
        Raises ValueError, which names the key and the value that are wrong.
        """
        full = checkpoint_folder.filled_config(config, cls.required, cls.defaults, cls.name, cls.find_problem)
        return cls(checkpoint_folder.build(lambda: cls.make_network(full), seed), full)

    @classmethod
    def load(cls, folder: Path, *, device: str = "cpu") -> Self:
        """Return the model of a released or saved checkpoint; only safetensors are read.

        uni2ts' own `from_pretrained` is not used: it leaves weights that the file lacks at random values, and
        calls whatever `_target_` names.
        Raises ModelError if config.json or the weights are unusable, or do not fit each other.
        """
        folder = Path(folder)
        config, path = checkpoint_folder.read_config(folder, cls.name), folder / "config.json"
        if missing := sorted({*cls.required, *cls.stored} - set(config)):
            raise ModelError(checkpoint_folder.of_other_family(f"{path}: keys {missing} are missing", cls.name))
        known = {*cls.required, *cls.defaults}
        full = {**cls.defaults, **{key: value for key, value in config.items() if key in known}}
        with checkpoint_folder.limit_parameters(folder):
            if wrong := cls.find_problem(full):
                raise ValueError(wrong)
            network = cls.make_network(full)
        apply_block(network, cls.attention_layers(network), config.get(BLOCK), str(path))
        weights, names = checkpoint_folder.read_weights(folder), network.state_dict()
        read = {name: value for name, value in weights.items() if name in names}
        return cls(own_checkpoint.fill(network, read, folder).to(device), full)

    @classmethod
    @abstractmethod
    def find_problem(cls, config: Mapping[str, Any]) -> str | None:
        """Return the reason why a whole config is unusable, or None."""

    @classmethod
    @abstractmethod
    def make_network(cls, config: Mapping[str, Any]) -> Any:
        """Return a network of uni2ts from a usable config."""

    def setting(self, key: str) -> Any:
        """Return a value of the config that the network was made of."""
        return self.config[key]

    def save(self, folder: Path) -> None:
        """Write config.json and model.safetensors, which `from_pretrained` of the network's class can read.

        Keys without a value are left out. The package ignores our `patch_size`, and cannot read the narrower weights of
        a compressed model.
        """
        from safetensors.torch import save_file

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        entries = {key: value for key, value in self.config.items() if value is not None}
        entries |= {"attn_dropout_p": 0.0, **config_block(self.network)}
        (folder / "config.json").write_text(json.dumps(entries, sort_keys=True, indent=2) + "\n")
        tensors = {name: tensor.cpu().contiguous() for name, tensor in self.network.state_dict().items()}
        save_file(tensors, folder / "model.safetensors")

    @property
    def blocks(self) -> Mapping[str, Sequence[Any]]:
        """Blocks of the only stack."""
        return {self.stacks[0]: self.network.encoder.layers}

    @classmethod
    def attention_layers(cls, network: Any) -> Iterator[AttentionLayer]:
        """Yield the self-attention of every block.

        Queries and keys are normed and rotated. The heads of a group share keys and values.
        """
        return layers_of_blocks(
            cls.stacks[0], network.encoder.layers, "self_attn", PARTS | {"o": "out_proj"}, heads="num_heads",
            groups="num_groups", scale="softmax_scale", plain=False,
        )  # fmt: skip

    def stock_model(self, **options: Any) -> Any:
        """Return the network as the class that uni2ts forecasts with.

        options: its arguments, at least prediction_length and context_length. Raises ValueError for unknown or missing
        options.
        """
        module, name = self.pipeline
        fixed = {"target_dim": 1, "feat_dynamic_real_dim": 0, "past_feat_dynamic_real_dim": 0}
        try:
            return getattr(importlib.import_module(module), name)(module=self.network, **{**fixed, **options}).eval()
        except TypeError as error:
            raise ValueError(f"pipeline of {self.name}: {error}") from error

    def read_package_network(self, network_class: Any, folder: Path) -> Any:
        """Return the network of uni2ts that this project reads a folder with."""
        return type(self).load(folder).network

    def _package_run(self, network: Any, windows: Windows, **options: Any) -> tuple[Any, dict[str, torch.Tensor]]:
        """Return uni2ts' class around its network, and its inputs; missing steps are 0."""
        import torch

        past, observed = np.nan_to_num(windows.context), ~np.isnan(windows.context)
        steps = {"prediction_length": windows.horizon, "context_length": past.shape[1]}
        inputs = {
            "past_target": past[:, :, None],
            "past_observed_target": observed[:, :, None],
            "past_is_pad": ~np.logical_or.accumulate(observed, axis=1),
        }
        forecaster = self.stock_model_of(network, **steps, **options)
        return forecaster, {name: torch.from_numpy(values) for name, values in inputs.items()}

    @property
    def _device(self) -> torch.device:
        device: torch.device = next(self.network.parameters()).device
        return device


class Moirai(MoiraiFamily):
    """Moirai models, whose network is a MoiraiModule.

    Rows of the encoder: one per context patch, then one per future patch, which reads the mask embedding only
    (MASK). As in the package, a missing step of the context is 0 before scaling. Patches before the first
    observed step are PADDING, and no later patch attends to them. A later patch without an observed step is
    PADDING too, because it stands for no value, but it is attended to. Scaling is done in float64; the
    package rounds loc and scale to float32 first.
    """

    name = "moirai"
    released = Released(
        tuple(
            f"Salesforce/moirai-{version}-R-{size}" for version in ("1.0", "1.1") for size in ("small", "base", "large")
        ),
        # The first commits of 1.0 had apache-2.0; "Update license" of 28 March 2024 changed it.
        "cc-by-nc-4.0",
        f"{page('Salesforce/moirai-1.0-R-large')} and {page('Salesforce/moirai-1.1-R-small')}",
    )
    package = Package("uni2ts", "uni2ts.model.moirai:MoiraiModule", network="uni2ts.model.moirai:MoiraiModule")
    config_keys = ("patch_sizes", "distr_output")
    example: ClassVar[Mapping[str, Any]] = {"d_model": 128, "num_layers": 3, "patch_sizes": [8, 16], "patch_size": 8}
    required = ("d_model", "num_layers", "patch_sizes")
    # uni2ts, cli/conf/pretrain/model/moirai_{small,base,large}.yaml. `patch_size` is our own key; None: the size that
    # belongs to the frequency.
    defaults: ClassVar[Mapping[str, Any]] = {
        "distr_output": MIXTURE, "max_seq_len": 512, "dropout_p": 0.0, "scaling": True, "patch_size": None,
    }  # fmt: skip
    stored = ("distr_output", "max_seq_len")
    pipeline = ("uni2ts.model.moirai", "MoiraiForecast")
    stacks = ("encoder",)
    output_modules = ("param_proj",)

    @classmethod
    def find_problem(cls, config: Mapping[str, Any]) -> str | None:
        """Return the reason why a config is unusable, or None."""
        sizes = config["patch_sizes"]
        if not isinstance(sizes, list | tuple) or not sizes or any(type(size) is not int or size < 1 for size in sizes):
            return f"got patch_sizes {sizes!r}, expected a list of lengths in steps, such as [8, 16, 32, 64, 128]"
        if config["patch_size"] is not None and config["patch_size"] not in sizes:
            return f"got patch_size {config['patch_size']!r}, expected one of patch_sizes {list(sizes)}, or null"
        return find_common_problem(config, ("num_layers", "max_seq_len"))

    @classmethod
    def make_network(cls, config: Mapping[str, Any]) -> Any:
        """Return a MoiraiModule."""
        # First, since the error for a missing package names the extra.
        network_class = package_class("uni2ts.model.moirai.module", "MoiraiModule", cls.name)
        options = {key: value for key, value in config.items() if key != "patch_size"}
        options |= {"distr_output": _distribution(config["distr_output"]), "patch_sizes": tuple(config["patch_sizes"])}
        # As released. Any other value of attn_dropout_p would act in eval mode too (uni2ts, module/attention.py).
        return network_class(**options, attn_dropout_p=0.0)

    def patch_size(self, freq: str) -> int:
        """Return the number of steps per patch for a pandas frequency.

        This is the config's patch_size if it is set, and otherwise the checkpoint's smallest size in the
        range of the frequency. If the checkpoint has none in the range, it is the nearest size below the
        range, or else the checkpoint's smallest size.
        In training, the package draws a size from the range. In forecasting, it leaves the choice to its
        user, or to the loss on the end of the context (`auto`). We take the smallest size because it gives
        the most tokens.
        """
        sizes = sorted(self.network.patch_sizes)
        if self.config["patch_size"] is not None:
            return int(self.config["patch_size"])
        first, last = patch_range(freq)
        inside = [size for size in sizes if first <= size <= last]
        return int(inside[0] if inside else max((size for size in sizes if size < first), default=sizes[0]))

    def rows_per_window(self, context: int, horizon: int) -> Mapping[str, int]:
        """Return the context patches, of the smallest size of any frequency; those of the future do not count."""
        return {"encoder": -(-context // min(self.patch_size(freq) for freq in ("", *RANGES)))}

    def stock_model(self, **options: Any) -> Any:
        """Return a MoiraiForecast of the package uni2ts, as `MoiraiFamily.stock_model` does.

        The default of patch_size is the model's own, if it has one.
        """
        size = {} if self.config["patch_size"] is None else {"patch_size": self.config["patch_size"]}
        return super().stock_model(**{**size, **options})

    def forecast_with_package(self, network: Any, windows: Windows, tokens: Tokens) -> PackageForecast:
        """Run uni2ts' class around its module; its forecast is sampled."""
        forecaster, inputs = self._package_run(network, windows, patch_size=self.patch_size(windows.freq))
        forecaster(**inputs, num_samples=1)
        return PackageForecast()

    def loss(self, context: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
        """Return the package's PackedNLLLoss in the data's units; missing steps have no weight.

        Each batch has one patch size. It is the config's patch_size if that is set. Otherwise torch's
        generator draws it, as in the package's training, from the sizes of which the context contains at
        least MIN_PATCHES.
        """
        import torch
        from torch.utils._pytree import tree_map
        from uni2ts.loss.packed import PackedNLLLoss

        size = self._training_size(context.shape[1])
        packed = self._pack_windows(context.cpu().numpy(), future.cpu().numpy(), size)
        parameters = tree_map(_without_nan_gradient, self._parameters(packed, slice(None)))
        distribution = self.network.distr_output.distribution(parameters, validate_args=False)
        target, observed, sample = (
            torch.from_numpy(part[:, packed.start :]).to(self._device)
            for part in (packed.patches, packed.observed, packed.sample_id)
        )
        scale = torch.from_numpy(clip_float32(packed.scale)).to(self._device)[:, None, None]
        losses = scale.log() - distribution.log_prob(target)
        loss: torch.Tensor = PackedNLLLoss().reduce_loss(
            losses, torch.ones_like(sample, dtype=torch.bool), observed, sample, torch.zeros_like(sample)
        )
        return loss

    def _tokenize(self, windows: Windows) -> Tokens:
        unknown = np.full_like(windows.future, np.nan)
        packed = self._pack_windows(windows.context, unknown, self.patch_size(windows.freq))
        kinds = np.where(packed.observed.any(axis=-1), TokenKind.OBSERVATION, TokenKind.PADDING).astype(np.int8)
        kinds[:, packed.start :] = TokenKind.MASK
        return Tokens(packed.arrays(), {"encoder": kinds}, {}, windows.series, windows.origin)

    def _pass(self, tokens: Tokens) -> Pass:
        encoder = self.network.eval().encoder
        start = int((tokens.kinds["encoder"] != TokenKind.MASK).all(axis=0).sum())
        packed = Packed.of(tokens.arrays, start)

        def forward(part: slice) -> None:
            self._encode(packed, part)

        return Pass({"encoder": Stack(encoder.layers, encoder.norm)}, forward)

    def _forecast(self, windows: Windows, levels: tuple[float, ...], samples: int, seeds: list[int]) -> np.ndarray:
        import torch

        self.network.eval()
        unknown = np.full_like(windows.future, np.nan)
        packed = self._pack_windows(windows.context, unknown, self.patch_size(windows.freq))
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
        """Return the sample paths of each window, in scaled units.

        They are drawn on the CPU from the window's own seed.
        Samples outside the range of float32, for example of a log-normal, are replaced by its largest number.
        Raises HealthError if a parameter of the distribution is not finite.
        """
        import torch
        from torch.utils._pytree import tree_leaves, tree_map

        output, paths = self.network.distr_output, []
        parameters = tree_map(lambda leaf: leaf.cpu(), parameters)
        if not all(torch.isfinite(leaf).all() for leaf in tree_leaves(parameters)):
            raise HealthError(f"{self.name}: the head's parameters contain NaN or infinity; check weights and inputs")
        with torch.random.fork_rng(devices=[]):
            for row, seed in enumerate(seeds):
                torch.default_generator.manual_seed(seed)
                row_parameters = tree_map(lambda leaf, row=row: leaf[row], parameters)
                draws = output.distribution(row_parameters, validate_args=False).sample((samples,))  # [S, T, P]
                paths.append(torch.nan_to_num(draws, nan=torch.nan).flatten(1).numpy())
        return paths

    def _parameters(self, packed: Packed, part: slice) -> Any:
        """Return the parameters of the mixture at the steps of the future, in scaled units.

        The result is the package's tree of [B, T, P] tensors.
        """
        from torch.utils._pytree import tree_map

        encoded, sizes = self._encode(packed, part)
        parameters = self.network.param_proj(encoded[:, packed.start :], sizes[:, packed.start :])
        return tree_map(lambda leaf: leaf[:, :, : packed.patches.shape[-1]], parameters)

    def _encode(self, packed: Packed, part: slice) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the encoder's output [B, T, d] for scaled windows, and the patch sizes [B, T].

        This is `MoiraiModule.forward` between its scaler and its heads.
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

    def _pack_windows(self, context: np.ndarray, future: np.ndarray, size: int) -> Packed:
        minimum = self.network.scaler.minimum_scale if self.network.scaling else None
        return pack(context, future, size=size, minimum_scale=minimum)

    def _training_size(self, context: int) -> int:
        """Return the config's patch size, or else draw one for a training batch.

        It is drawn from the sizes of which `context` steps contain at least MIN_PATCHES. If there is none,
        the smallest size is returned.
        """
        import torch

        sizes = sorted(self.network.patch_sizes)
        if self.config["patch_size"] is not None:
            return int(self.config["patch_size"])
        usable = [size for size in sizes if size * MIN_PATCHES <= context] or sizes[:1]
        return int(usable[int(torch.randint(len(usable), ()))])


def _without_nan_gradient(leaf: torch.Tensor) -> torch.Tensor:
    """Return the leaf, with a hook that replaces NaN in its gradient by 0, and infinity by a finite number.

    If a step lies outside a component's support, the package computes the density of a sample instead and
    discards it. The gradient should then be 0, but it is NaN if that sample is infinite.
    """
    import torch

    if leaf.requires_grad:
        leaf.register_hook(torch.nan_to_num)
    return leaf
