"""A tabular Transformer with Mitra's layout (Zhang et al. 2025): it classifies a table's unlabelled rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from tsfmscope.errors import ModelError
from tsfmscope.models.base import BlockFamily
from tsfmscope.models.common import checkpoint_folder
from tsfmscope.models.common.attention import AttentionLayer
from tsfmscope.models.common.capture import Pass, Stack
from tsfmscope.models.common.compression_block import config_block
from tsfmscope.models.common.own_checkpoint import Count, Release, SavedConfig, read
from tsfmscope.models.types import TokenKind, Tokens
from tsfmscope.series.catalog import Modality
from tsfmscope.series.types import Windows

if TYPE_CHECKING:
    import torch

CLASSIFICATION = "CLASSIFICATION"
# Share of the first rows whose label the model sees. Our choice: a table has no split.
SUPPORT = 0.75
# Quantiles among which a feature's values are ranked.
QUANTILES = np.arange(1, 1000) / 1000
# Fewest rows of a table: three with labels, one without.
SMALLEST = 4


class Config(SavedConfig):
    """Keys of Mitra's config.json; 10 classes are those of the released autogluon/mitra-classifier."""

    dim_output: Count = 10
    dim: Count
    n_layers: Count
    n_heads: Count

    def find_problem(self) -> str | None:
        """Return why a shape cannot be used, or None."""
        if self.dim % self.n_heads:
            return f"dim: got {self.dim}, expected a multiple of n_heads {self.n_heads}"
        return None


class Tabular(BlockFamily):
    """Tabular models with Mitra's layout.

    Rows of the encoder: for every row of the table its label, then its features, one token per cell.

    A window is a table where its context begins one, as data sets of source `tables` give them: the number of
    columns, then the cells row by row, the label of each row last. The label of the last row is the future.
    Any other window is PADDING throughout, and so is a table with another number of columns than the first
    table.

    The labels of the first rows are OBSERVATION; the others are hidden from the model (kind MASK), which
    predicts them. Features are ranked among the quantiles of the rows with labels, then standardised by them,
    as in the release. A missing feature is at their mean (PADDING). Labels are the classes that those rows
    have, in ascending order, or as many ranges of them as the model has classes.

    Odd blocks attend down the columns, to the rows with labels. Even blocks attend along the rows. No block
    attends between all tokens of a window, so the family is not `plain_attention`.
    """

    name: ClassVar[str] = "tabular"
    config_keys: ClassVar[tuple[str, ...]] = ("dim_output", "task")
    example: ClassVar[Mapping[str, Any]] = {"dim": 16, "n_layers": 2, "n_heads": 2}
    stacks: ClassVar[tuple[str, ...]] = ("encoder",)
    width_key: ClassVar[str] = "dim"
    mlp: ClassVar[Mapping[str, str]] = {"mlp_in": "mlp_in", "mlp_out": "mlp_out"}
    modality: ClassVar[Modality] = "table"
    # tabular_network.Tab2D.
    network: Any

    def __init__(self, network: Any, config: Mapping[str, Any], *, batch: int = 16) -> None:
        """Wrap a Tab2D; config: as in config.json; batch: tables per forward pass."""
        self.network = network.eval()
        self.config = dict(config)
        self.batch = batch

    @classmethod
    def new(cls, config: Mapping[str, Any], *, seed: int) -> Self:
        """Return a model with random weights; ValueError for a config that `Config` does not take."""
        from tsfmscope.models.tabular_network import Tab2D

        full = Config.fill(config, cls.name)
        return cls(checkpoint_folder.build(lambda: Tab2D(**full), seed), full | {"task": CLASSIFICATION})

    @classmethod
    def load(cls, folder: Path, *, device: str = "cpu") -> Self:
        """Load a released or saved classifier, safetensors only; ModelError names the file that is wrong."""
        from tsfmscope.models.tabular_network import Tab2D, released_name

        folder = Path(folder)
        saved, names = checkpoint_folder.read_config(folder, cls.name), Config.model_fields
        if str(saved.get("task")).upper() != CLASSIFICATION or not set(names) <= set(saved):
            problem = (
                f"{folder / 'config.json'}: got task {saved.get('task')!r} and keys {sorted(saved)}, expected "
                f"{CLASSIFICATION!r} and {list(names)}"
            )
            raise ModelError(f"{checkpoint_folder.of_other_family(problem, cls.name)}, or take a classifier")

        def rename(weights: dict[str, Any], network: Any) -> dict[str, Any]:
            own = {released_name(name): name for name in network.state_dict()}
            return {own.get(name, name): value for name, value in weights.items()}

        release = Release(Config, {}, "Mitra")
        network, shape = read(folder, saved, release, lambda config: Tab2D(**config), cls.attention_layers, rename)
        return cls(network.to(device), shape | {"task": CLASSIFICATION})

    def setting(self, key: str) -> Any:
        """Return a value of the config that the network was made of."""
        return self.config[key]

    def save(self, folder: Path) -> None:
        """Write config.json and model.safetensors under the names of the release."""
        from safetensors.torch import save_file

        from tsfmscope.models.tabular_network import released_name

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        weights = self.network.state_dict()
        state = {released_name(name): tensor.contiguous() for name, tensor in weights.items()}
        save_file(state, folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps(self.config | config_block(self.network), indent=2) + "\n")

    @property
    def blocks(self) -> Mapping[str, Sequence[Any]]:
        """Blocks of the encoder."""
        return {"encoder": self.network.blocks}

    @classmethod
    def attention_layers(cls, network: Any) -> Iterator[AttentionLayer]:
        """Yield attention of every block; scores are q·k between the tokens of one column or row."""
        from tsfmscope.models.tabular_network import attentions

        return attentions(network)

    def rows_per_window(self, context: int, horizon: int) -> Mapping[str, int]:
        """Return the number of cells except hidden labels.

        The table is assumed to have as many columns as the project's own tables.
        """
        from tsfmscope.series.other_modalities import FEATURES

        rows, rest = divmod(context, FEATURES + 1)
        return {"encoder": 0 if rest or rows < SMALLEST else context - (rows - _support(rows))}

    def loss(self, context: torch.Tensor, future: torch.Tensor) -> torch.Tensor:
        """Return the cross entropy of the hidden labels, as PFNs are trained.

        ValueError unless all windows are tables of one shape.
        """
        import torch

        values = torch.cat((context, future), dim=1).cpu().numpy()
        columns = set(_columns(values).tolist())
        if future.shape[1] != 1 or len(columns) != 1 or 0 in columns:
            raise ValueError(f"{self.name}: got tables of {sorted(columns)} columns, expected whole ones of one shape")
        features, labels = self._to_inputs(_tables(values, columns.pop()))
        support = _support(features.shape[1])
        inputs, ids = (torch.from_numpy(part).to(self._device) for part in (features, labels))
        logits = self.network.logits(inputs, ids[:, :support], support)
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, support:].flatten())

    @property
    def _device(self) -> Any:
        return self.network.final_layer.weight.device

    def _tokenize(self, windows: Windows) -> Tokens:
        values = np.concatenate((windows.context, windows.future[:, :1]), axis=1)
        columns = np.where(windows.origin == windows.context.shape[1], _columns(values), 0)
        is_table = columns == next((column_count for column_count in columns.tolist() if column_count), -1)
        if windows.horizon != 1 or not is_table.any():
            return _padding_tokens(windows)
        table = _tables(values[is_table], int(columns[is_table][0]))
        support = _support(table.shape[1])
        inputs = self._to_inputs(table)
        features, labels = (np.zeros((len(windows), *part.shape[1:]), part.dtype) for part in inputs)
        features[is_table], labels[is_table] = inputs
        kinds = np.full((len(windows), *table.shape[1:]), TokenKind.PADDING, dtype=np.int8)
        observed = np.where(np.isnan(table), TokenKind.PADDING, TokenKind.OBSERVATION)
        observed[:, support:, -1] = TokenKind.MASK
        # The network's order: the label of a row first.
        kinds[is_table] = np.roll(observed, 1, axis=2)
        arrays = {"features": features, "labels": np.clip(labels[:, :support], 0, None).astype(np.int32)}
        return Tokens(arrays, {"encoder": kinds.reshape(len(windows), -1)}, {}, windows.series, windows.origin)

    def _pass(self, tokens: Tokens) -> Pass:
        import torch

        network, arrays = self.network.eval(), tokens.arrays

        def forward(part: slice) -> None:
            labels = torch.from_numpy(arrays["labels"][part].astype(np.int64)).to(self._device)
            network(torch.from_numpy(np.array(arrays["features"][part])).to(self._device), labels, labels.shape[1])

        return Pass({"encoder": Stack(network.blocks, network.final_layer_norm)}, forward)

    def _to_inputs(self, table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return features [W, R, F] and class ids [W, R], -100: missing, of tables [W, R, F + 1]."""
        support = _support(table.shape[1])
        features = np.empty((*table.shape[:2], table.shape[2] - 1), dtype=np.float32)
        labels = np.empty(table.shape[:2], dtype=np.int64)
        for window, cells in enumerate(table.astype(np.float64)):
            for column in range(features.shape[2]):
                features[window, :, column] = _to_ranks(cells[:, column], support)
            labels[window] = _classes(cells[:, -1], support, int(self.config["dim_output"]))
        return features, labels


def _support(rows: int) -> int:
    """Return the number of rows whose label is shown."""
    return int(rows * SUPPORT)


def _columns(values: np.ndarray) -> np.ndarray:
    """Return the number of columns of each window's table [W, 1 + R * columns], 0 for other windows."""
    head, cells = values[:, 0].astype(np.float64), values.shape[1] - 1
    possible = (head >= 2) & (head * SMALLEST <= cells) & (head == np.floor(head))
    divisors = np.where(possible, head, 1).astype(np.int64)
    return np.where(possible & (cells % divisors == 0), divisors, 0)


def _tables(values: np.ndarray, columns: int) -> np.ndarray:
    """Return the cells of windows as tables [W, R, columns]."""
    return values[:, 1:].reshape(len(values), -1, columns)


def _padding_tokens(windows: Windows) -> Tokens:
    """Return tokens of windows of which none is a table: one row of one feature each, PADDING."""
    arrays = {"features": np.zeros((len(windows), 1, 1), np.float32), "labels": np.zeros((len(windows), 1), np.int32)}
    kinds = np.full((len(windows), 2), TokenKind.PADDING, dtype=np.int8)
    return Tokens(arrays, {"encoder": kinds}, {}, windows.series, windows.origin)


def _to_ranks(column: np.ndarray, support: int) -> np.ndarray:
    """Return a feature's values as ranks among quantiles of the observed values in the first rows.

    Ranks are standardised by those of the first rows. A missing value is 0, and so is every value where the
    first rows have no spread.
    """
    missing = np.isnan(column)
    support_values = column[:support][~missing[:support]]
    if not len(support_values):
        return np.zeros(len(column))
    edges = np.quantile(support_values, QUANTILES)
    ranks, known = (np.searchsorted(edges, part).astype(np.float64) for part in (column, support_values))
    deviation = known.std()
    return np.zeros(len(column)) if deviation == 0 else np.where(missing, 0.0, (ranks - known.mean()) / deviation)


def _classes(label: np.ndarray, support: int, most: int) -> np.ndarray:
    """Return class ids of a column of labels, -100 where one is missing.

    Classes are the values in the first rows, ascending, or ranges between their quantiles where there are
    more than `most`.
    """
    missing = np.isnan(label)
    support_values = np.unique(label[:support][~missing[:support]])
    if len(support_values) > most:
        ids = np.searchsorted(np.quantile(support_values, np.arange(1, most) / most), label, side="right")
    else:
        ids = np.clip(np.searchsorted(support_values, label), 0, max(len(support_values) - 1, 0))
    return np.where(missing, -100, ids)
