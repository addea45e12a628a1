"""A tabular Transformer, of Mitra's layout (Zhang et al. 2025): a table in, the classes of its unlabelled rows out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from tasks.errors import ModelError
from tasks.models import folders
from tasks.models.attention import BLOCK, AttentionLayer, fit, told
from tasks.models.base import Family
from tasks.models.capture import Pass, Stack
from tasks.models.types import TokenKind, Tokens, WeightMatrix
from tasks.series.catalog import Modality
from tasks.series.contrast import FEATURES
from tasks.series.types import Windows

if TYPE_CHECKING:
    import torch

REQUIRED = ("dim", "n_layers", "n_heads")
DEFAULTS = {"dim_output": 10}  # classes, of the released autogluon/mitra-classifier
CLASSIFICATION = "CLASSIFICATION"
SUPPORT = 0.75  # share of the rows, from the first on, whose label the model is shown; ours, a table has no split
QUANTILES = np.arange(1, 1000) / 1000  # that a feature's values are ranked among
SMALLEST = 4  # rows of a table: three with labels, one without


class Tabular(Family):
    """Rows of the encoder: of every row of the table its label, then its features, a token a cell.

    A window is a table where its context begins one, as data sets of source `tables` give them: the number of columns,
    then the cells row by row, the label of each row last, that of the last row the future. Any other window is PADDING
    throughout, and so is one of other columns than the first table's.

    The first rows' labels are OBSERVATION; the others are hidden from the model (kind MASK) and asked for. Features are
    ranked among the quantiles of the rows with labels, then standardised by them, as in the release; missing ones stand
    at their mean (PADDING). Labels are the classes that those rows have, in their order, or as many ranges of them as
    the model has classes. Attention goes down the columns in odd blocks, to the rows with labels, and along the rows in
    even ones: never between all tokens of a window, so that it is not `plain_attention`.
    """

    name: ClassVar[str] = "tabular"
    stacks: ClassVar[tuple[str, ...]] = ("encoder",)
    modality: ClassVar[Modality] = "table"
    network: Any  # tabular_network.Tab2D

    def __init__(self, network: Any, config: Mapping[str, Any], *, batch: int = 16) -> None:
        """Wrap a Tab2D; config: as in config.json; batch: tables a forward pass."""
        self.network = network.eval()
        self.config = dict(config)
        self.batch = batch

    @classmethod
    def new(cls, config: Mapping[str, Any], *, seed: int) -> Self:
        """Random weights. Keys, named as in Mitra's config.json: REQUIRED, and those of DEFAULTS where they differ."""
        from tasks.models.tabular_network import Tab2D

        full = folders.filled_config(config, REQUIRED, DEFAULTS, cls.name)
        if wrong := _unusable(full):
            raise ValueError(f"{cls.name} config: {wrong}")
        return cls(folders.build(lambda: Tab2D(**full), seed), full | {"task": CLASSIFICATION})

    @classmethod
    def load(cls, folder: Path, *, device: str = "cpu") -> Self:
        """A released or saved classifier, safetensors only. ModelError names the file that is wrong."""
        from tasks.models.tabular_network import Tab2D, attentions

        folder = Path(folder)
        config = folders.read_config(folder, cls.name)
        names = (*REQUIRED, *DEFAULTS)
        if str(config.get("task")).upper() != CLASSIFICATION or not set(names) <= set(config):
            raise ModelError(
                f"{folder / 'config.json'}: got task {config.get('task')!r} and keys {sorted(config)}, expected "
                f"{CLASSIFICATION!r} and {list(names)}, so this is no {cls.name} checkpoint; name the family that the "
                "checkpoint belongs to, or take a classifier"
            )
        shape = {name: config[name] for name in names}
        if wrong := _unusable(shape):
            raise ModelError(f"{folder / 'config.json'}: {wrong}; fetch or save the checkpoint again")
        with folders.bounded(folder):
            network = folders.build(lambda: Tab2D(**shape), 0)
        fit(network, attentions(network), config.get(BLOCK), str(folder / "config.json"))
        _read_weights(network, folder)
        return cls(network.to(device), shape | {"task": CLASSIFICATION})

    def save(self, folder: Path) -> None:
        """config.json and model.safetensors under the names of the release."""
        from safetensors.torch import save_file

        from tasks.models.tabular_network import released_names

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        state = {name: tensor.contiguous() for name, tensor in released_names(self.network.state_dict()).items()}
        save_file(state, folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps(self.config | told(self.network), indent=2) + "\n")

    @property
    def layers(self) -> Mapping[str, int]:
        """Blocks: two a layer of the release, down the columns and along the rows."""
        return {"encoder": len(self.network.blocks)}

    @property
    def width(self) -> int:
        """dim."""
        return int(self.config["dim"])

    def rows_per_window(self, context: int, horizon: int) -> Mapping[str, int]:
        """Cells but for the hidden labels, of a table of as many columns as the project's own."""
        rows, rest = divmod(context, FEATURES + 1)
        return {"encoder": 0 if rest or rows < SMALLEST else context - (rows - _support(rows))}

    def weights(self) -> Iterator[WeightMatrix]:
        """q, k, v, o (self), mlp_in, mlp_out; `layer` counts blocks from 1."""
        heads = int(self.config["n_heads"])
        for layer, block in enumerate(self.network.blocks, start=1):
            for what in ("q", "k", "v", "o"):
                module = getattr(block.attention, what)
                yield WeightMatrix.of(module, "encoder", layer, what, attention="self", heads=heads)
            for what in ("mlp_in", "mlp_out"):
                yield WeightMatrix.of(getattr(block, what), "encoder", layer, what)

    def attentions(self) -> Iterator[AttentionLayer]:
        """Attention of every block: its scores are q·k among the tokens that it looks at."""
        from tasks.models.tabular_network import attentions

        return attentions(self.network)

    def loss(self, context: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
        """Cross entropy of the hidden labels, as PFNs are trained. ValueError where the windows are no like tables."""
        import torch

        values = torch.cat((context, future), dim=1).cpu().numpy()
        columns = set(_columns(values).tolist())
        if future.shape[1] != 1 or len(columns) != 1 or 0 in columns:
            raise ValueError(f"{self.name}: got tables of {sorted(columns)} columns, expected whole ones of one shape")
        features, labels = self._prepared(_tables(values, columns.pop()))
        support = _support(features.shape[1])
        inputs, ids = (torch.from_numpy(part).to(self._device) for part in (features, labels))
        logits = self.network.logits(inputs, ids[:, :support], support)
        loss: torch.Tensor = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, support:].flatten())
        return loss

    @property
    def _device(self) -> Any:
        return self.network.final_layer.weight.device

    def _tokenize(self, windows: Windows) -> Tokens:
        values = np.concatenate((windows.context, windows.future[:, :1]), axis=1)
        columns = np.where(windows.origin == windows.context.shape[1], _columns(values), 0)
        whole = columns == next((one for one in columns.tolist() if one), -1)
        if windows.horizon != 1 or not whole.any():
            return _nothing(windows)
        table = _tables(values[whole], int(columns[whole][0]))
        support = _support(table.shape[1])
        found = self._prepared(table)
        features, labels = (np.zeros((len(windows), *part.shape[1:]), part.dtype) for part in found)
        features[whole], labels[whole] = found
        kinds = np.full((len(windows), *table.shape[1:]), TokenKind.PADDING, dtype=np.int8)
        observed = np.where(np.isnan(table), TokenKind.PADDING, TokenKind.OBSERVATION)
        observed[:, support:, -1] = TokenKind.MASK
        kinds[whole] = np.roll(observed, 1, axis=2)  # the network's order: the label of a row first
        return Tokens(
            arrays={"features": features, "labels": np.clip(labels[:, :support], 0, None).astype(np.int32)},
            kinds={"encoder": kinds.reshape(len(windows), -1)},
            types={},
            series=windows.series,
            origin=windows.origin,
        )

    def _pass(self, tokens: Tokens) -> Pass:
        import torch

        network, arrays = self.network.eval(), tokens.arrays

        def forward(part: slice) -> None:
            labels = torch.from_numpy(arrays["labels"][part].astype(np.int64)).to(self._device)
            network(torch.from_numpy(np.array(arrays["features"][part])).to(self._device), labels, labels.shape[1])

        return Pass({"encoder": Stack(network.blocks, network.final_layer_norm)}, forward)

    def _prepared(self, table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Features [W, R, F] float32 and class ids [W, R] int64, -100 where missing, of tables [W, R, F + 1]."""
        support = _support(table.shape[1])
        features = np.empty((*table.shape[:2], table.shape[2] - 1), dtype=np.float32)
        labels = np.empty(table.shape[:2], dtype=np.int64)
        for window, cells in enumerate(table.astype(np.float64)):
            for column in range(features.shape[2]):
                features[window, :, column] = _ranked(cells[:, column], support)
            labels[window] = _classes(cells[:, -1], support, int(self.config["dim_output"]))
        return features, labels


def _support(rows: int) -> int:
    """Rows whose label is shown."""
    return int(rows * SUPPORT)


def _columns(values: np.ndarray) -> np.ndarray:
    """Columns of the table that each window [W, 1 + R * columns] is, 0 where it is none."""
    head, cells = values[:, 0].astype(np.float64), values.shape[1] - 1
    possible = (head >= 2) & (head * SMALLEST <= cells) & (head == np.floor(head))
    found = np.where(possible, head, 1).astype(np.int64)
    return np.where(possible & (cells % found == 0), found, 0)


def _tables(values: np.ndarray, columns: int) -> np.ndarray:
    """Tables [W, R, columns]."""
    return values[:, 1:].reshape(len(values), -1, columns)


def _nothing(windows: Windows) -> Tokens:
    """Tokens of windows of which none is a table: one row of one feature each, PADDING."""
    arrays = {"features": np.zeros((len(windows), 1, 1), np.float32), "labels": np.zeros((len(windows), 1), np.int32)}
    kinds = np.full((len(windows), 2), TokenKind.PADDING, dtype=np.int8)
    return Tokens(arrays, {"encoder": kinds}, {}, windows.series, windows.origin)


def _ranked(column: np.ndarray, support: int) -> np.ndarray:
    """A feature's values as quantiles of the observed ones of the first rows, standardised by them; 0 if missing."""
    missing = np.isnan(column)
    shown = column[:support][~missing[:support]]
    if not len(shown):
        return np.zeros(len(column))
    edges = np.quantile(shown, QUANTILES)
    ranks, known = (np.searchsorted(edges, part).astype(np.float64) for part in (column, shown))
    deviation = known.std()
    return np.zeros(len(column)) if deviation == 0 else np.where(missing, 0.0, (ranks - known.mean()) / deviation)


def _classes(label: np.ndarray, support: int, most: int) -> np.ndarray:
    """Class ids of a label: its values in the first rows, in their order; ranges of them where these are too many."""
    missing = np.isnan(label)
    shown = np.unique(label[:support][~missing[:support]])
    if len(shown) > most:
        ids = np.searchsorted(np.quantile(shown, np.arange(1, most) / most), label, side="right")
    else:
        ids = np.clip(np.searchsorted(shown, label), 0, max(len(shown) - 1, 0))
    return np.where(missing, -100, ids)


def _unusable(config: Mapping[str, Any]) -> str | None:
    """What keeps a shape from being used, or None."""
    for name, value in config.items():
        if not isinstance(value, int) or value < 1:
            return f"{name}: got {value!r}, expected a whole number of at least 1"
    if config["dim"] % config["n_heads"]:
        return f"dim: got {config['dim']}, expected a multiple of n_heads {config['n_heads']}"
    return None


def _read_weights(network: Any, folder: Path) -> None:
    """The tensors of every *.safetensors of the folder, into the network; ModelError where they are not its own."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    from tasks.models.tabular_network import own_names

    try:
        parts = [load_file(path) for path in sorted(folder.glob("*.safetensors"))]
    except (SafetensorError, OSError) as error:
        raise ModelError(
            f"{folder}: weights cannot be read ({type(error).__name__}: {error}); fetch or save the checkpoint again"
        ) from error
    state = {name: tensor for part in parts for name, tensor in part.items()}
    names, own = own_names(network), network.state_dict()
    missing, unknown = sorted(set(names) - set(state)), sorted(set(state) - set(names))
    off = [name for name in set(names) & set(state) if own[names[name]].shape != state[name].shape]
    if missing or unknown or off:
        raise ModelError(
            f"{folder}: weights do not fit config.json: missing {missing[:5]}, unknown {unknown[:5]}, of another shape "
            f"{sorted(off)[:5]}; use the config that they were saved with"
        )
    network.load_state_dict({names[name]: tensor.float() for name, tensor in state.items()})
