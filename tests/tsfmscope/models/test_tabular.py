"""The tabular Transformer against Mitra's layout written out: preprocessing, one block, masks, names of its weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from scipy.special import erf

from tsfmscope.errors import ModelError
from tsfmscope.models.tabular import Tabular, _classes, _to_ranks
from tsfmscope.models.types import TokenKind
from tsfmscope.series import other_modalities
from tsfmscope.series.types import Windows

Make = Callable[..., Windows]
ROWS, COLUMNS, SUPPORT = 12, 9, 9  # of `items`: 12 rows, of which three quarters have labels


def table_window(windows_of: Callable[..., Windows], *tables: np.ndarray) -> Windows:
    values = np.stack([other_modalities.item(table) for table in tables])
    return windows_of(values[:, :-1], values[:, -1:])


def norm(states: np.ndarray, layer: dict[str, np.ndarray], name: str) -> np.ndarray:
    centred = states - states.mean(-1, keepdims=True)
    normed = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    return np.asarray(normed * layer[f"{name}.weight"] + layer[f"{name}.bias"])


def linear(states: np.ndarray, layer: dict[str, np.ndarray], name: str) -> np.ndarray:
    return np.asarray(states @ layer[f"{name}.weight"].T + layer[f"{name}.bias"])


def attend(asking: np.ndarray, asked: np.ndarray, layer: dict[str, np.ndarray], name: str, heads: int) -> np.ndarray:
    """Of one run of tokens [T, d], head by head."""
    q, k, v = (linear(part, layer, f"{name}.{w}") for part, w in ((asking, "q"), (asked, "k"), (asked, "v")))
    found, width = [], q.shape[1] // heads
    for head in range(heads):
        at = slice(head * width, (head + 1) * width)
        scores = np.exp(q[:, at] @ k[:, at].T / np.sqrt(width))
        found.append(scores / scores.sum(axis=1, keepdims=True) @ v[:, at])
    return linear(np.concatenate(found, axis=1), layer, f"{name}.o")


def mlp(states: np.ndarray, layer: dict[str, np.ndarray], first: str, second: str) -> np.ndarray:
    grown = linear(states, layer, first)
    return linear(grown * 0.5 * (1 + erf(grown / np.sqrt(2))), layer, second)


def released_layer(table: np.ndarray, layer: dict[str, np.ndarray], support: int, heads: int) -> list[np.ndarray]:
    """A layer of the release on cells [R, C, d], in slow loops: down the columns, then along the rows."""
    down, normed = table.copy(), norm(table, layer, "layer_norm1")
    for column in range(table.shape[1]):
        down[:, column] += attend(normed[:, column], normed[:support, column], layer, "attention1", heads)
    down += mlp(norm(down, layer, "layer_norm2"), layer, "linear1", "linear2")
    along, normed = down.copy(), norm(down, layer, "layer_norm3")
    for row in range(table.shape[0]):
        along[row] += attend(normed[row], normed[row], layer, "attention2", heads)
    along += mlp(norm(along, layer, "layer_norm4"), layer, "linear3", "linear4")
    return [down, along]


def layer_of(folder: Path, number: int) -> dict[str, np.ndarray]:
    prefix = f"layers.{number}."
    state = load_file(folder / "model.safetensors")
    return {
        name.removeprefix(prefix): value.double().numpy() for name, value in state.items() if name.startswith(prefix)
    }


def test_every_state_is_that_of_the_layout_written_out(tabular: Tabular, items: Make, tmp_path: Path) -> None:
    tabular.save(tmp_path)
    made = items(tabular, count=1)
    states = {
        (s.layer, s.normed): s.states[0].astype(np.float64) for s in tabular.hidden_states(tabular.tokenize(made))
    }
    cells = states[0, False].reshape(ROWS, COLUMNS, -1)
    for number in range(2):
        for half, expected in enumerate(released_layer(cells, layer_of(tmp_path, number), SUPPORT, 2), start=1):
            np.testing.assert_allclose(states[2 * number + half, False].reshape(cells.shape), expected, atol=1e-4)
            cells = expected
    whole = load_file(tmp_path / "model.safetensors")
    outer = {name: value.double().numpy() for name, value in whole.items()}
    np.testing.assert_allclose(states[4, True].reshape(cells.shape), norm(cells, outer, "final_layer_norm"), atol=1e-4)


def test_the_first_states_are_labels_then_features(tabular: Tabular, windows_of: Callable[..., Windows]) -> None:
    table = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
    table[:, -1] = [2, 0, 1, 2, 0, 1, 1, 2]
    tokens = tabular.tokenize(table_window(windows_of, table))
    assert tokens.kinds["encoder"].reshape(8, 3).tolist() == [[0, 0, 0]] * 6 + [[TokenKind.MASK, 0, 0]] * 2
    network = tabular.network
    states = next(tabular.hidden_states(tokens)).states.reshape(8, 3, -1)
    with torch.inference_mode():
        labels = network.y_embedding(torch.tensor([2, 0, 1, 2, 0, 1])).numpy()
        hidden = network.y_mask.weight.numpy()
        feature = network.x_embedding(
            torch.from_numpy(_to_ranks(table[:, 1].astype(float), 6)).float()[:, None]
        ).numpy()
    np.testing.assert_allclose(states[:6, 0], labels, atol=1e-6)
    np.testing.assert_allclose(states[6:, 0], np.repeat(hidden, 2, axis=0), atol=1e-6)
    np.testing.assert_allclose(states[:, 2], feature, atol=1e-5)


def test_hidden_labels_change_nothing_but_the_loss(tabular: Tabular, items: Make) -> None:
    made = items(tabular, count=2)
    values = np.concatenate((made.context, made.future), axis=1)
    tables = values[:, 1:].reshape(2, ROWS, COLUMNS)
    tables[:, SUPPORT:, -1] = (tables[:, SUPPORT:, -1] + 1) % 2
    other = replace(made, context=values[:, :-1], future=values[:, -1:])
    for one, two in zip(*(tabular.hidden_states(tabular.tokenize(w)) for w in (made, other)), strict=True):
        np.testing.assert_array_equal(one.states, two.states)
    losses = [tabular.loss(torch.from_numpy(w.context), torch.from_numpy(w.future)).item() for w in (made, other)]
    assert losses[0] != losses[1]


def test_rows_without_a_label_do_not_know_of_each_other(tabular: Tabular, items: Make) -> None:
    made = items(tabular, count=1)
    values = np.concatenate((made.context, made.future), axis=1)
    changed = values.copy()
    changed[0, 1:].reshape(ROWS, COLUMNS)[-1, :-1] += 5.0
    first, second = (
        list(tabular.hidden_states(tabular.tokenize(replace(made, context=v[:, :-1], future=v[:, -1:]))))[-1].states
        for v in (values, changed)
    )
    differ = (first != second).reshape(ROWS, -1).any(axis=1)
    assert differ.tolist() == [False] * (ROWS - 1) + [True]


def test_the_loss_is_the_cross_entropy_of_the_hidden_labels(tabular: Tabular, items: Make) -> None:
    made = items(tabular, count=2)
    values = np.concatenate((made.context, made.future), axis=1)
    tokens = tabular.tokenize(made)
    last = list(tabular.hidden_states(tokens))[-1].states.reshape(2, ROWS, COLUMNS, -1)
    logits = tabular.network.final_layer(torch.from_numpy(last[:, SUPPORT:, 0])).log_softmax(-1).detach().numpy()
    wanted = []
    for window, table in enumerate(values[:, 1:].reshape(2, ROWS, COLUMNS)):
        seen = sorted(set(table[:SUPPORT, -1].tolist()))
        for row in range(SUPPORT, ROWS):
            place = min(sum(one < table[row, -1] for one in seen), len(seen) - 1)
            wanted.append(-logits[window, row - SUPPORT, place])
    loss = tabular.loss(torch.from_numpy(made.context), torch.from_numpy(made.future))
    assert loss.item() == pytest.approx(float(np.mean(wanted)), rel=1e-4)


def test_a_feature_is_ranked_among_999_quantiles_of_the_rows_with_labels_then_standardised() -> None:
    column = np.random.default_rng(3).lognormal(size=20)
    shown = np.sort(column[:15])
    ranks = []
    for value in column:
        edges = [np.interp(q / 1000 * 14, np.arange(15), shown) for q in range(1, 1000)]
        ranks.append(sum(edge < value for edge in edges))
    known = np.array(ranks[:15], dtype=float)
    expected = (np.array(ranks) - known.mean()) / known.std()
    np.testing.assert_allclose(_to_ranks(column, 15), expected, atol=0.02)  # an edge may fall on either side of a value


def test_a_feature_s_monotone_transform_changes_nothing() -> None:
    column = np.random.default_rng(4).normal(size=24)
    np.testing.assert_allclose(_to_ranks(np.exp(column), 18), _to_ranks(column, 18), atol=0.1)
    assert (_to_ranks(np.full(8, 3.0), 6) == 0).all()
    assert (_to_ranks(np.full(8, np.nan), 6) == 0).all()


@pytest.mark.parametrize(
    ("label", "most", "expected"),
    [
        ([9.0, 7.0, 5.0, 7.0], 10, [2, 1, 0, 1]),
        ([5.0, 7.0, 5.0, 9.0], 10, [0, 1, 0, 1]),  # a class that no row with a label has: the nearest of those
        ([5.0, 7.0, np.nan, 5.0], 10, [0, 1, -100, 0]),
        ([1.0, 1.0, 1.0, 8.0], 10, [0, 0, 0, 0]),  # the only class there is
        ([1.0, 2.0, 3.0, 4.0], 2, [0, 1, 1, 1]),  # three values, two classes: below and from the median
        ([np.nan, np.nan, np.nan, 1.0], 10, [-100, -100, -100, 0]),
    ],
)
def test_classes_are_the_labels_that_are_shown(label: list[float], most: int, expected: list[int]) -> None:
    assert _classes(np.array(label), 3, most).tolist() == expected


def test_a_table_of_other_columns_stands_for_nothing(tabular: Tabular, windows_of: Callable[..., Windows]) -> None:
    rng = np.random.default_rng(0)
    wide, tall = other_modalities.draw_table(rng, 6, 5), other_modalities.draw_table(rng, 12, 2)
    tokens = tabular.tokenize(table_window(windows_of, wide, tall))
    observed = (tokens.kinds["encoder"] == TokenKind.OBSERVATION).sum(axis=1)
    assert observed.tolist() == [34, 0]


def test_the_names_of_the_weights_are_those_of_the_release(tabular: Tabular, tmp_path: Path) -> None:
    """autogluon's Tab2D: names and shapes of a layer, and around the layers."""
    tabular.save(tmp_path)
    state = {name: tuple(value.shape) for name, value in load_file(tmp_path / "model.safetensors").items()}
    d, expected = 16, {}
    for layer in range(2):
        for attention in ("attention1", "attention2"):
            for part in "qkvo":
                expected |= {f"layers.{layer}.{attention}.{part}.weight": (d, d)}
                expected |= {f"layers.{layer}.{attention}.{part}.bias": (d,)}
        for n in range(1, 5):
            wide = (4 * d, d) if n in (1, 3) else (d, 4 * d)
            expected |= {f"layers.{layer}.linear{n}.weight": wide, f"layers.{layer}.linear{n}.bias": wide[:1]}
            expected |= {f"layers.{layer}.layer_norm{n}.{part}": (d,) for part in ("weight", "bias")}
    expected |= {"x_embedding.x_embedding.weight": (d, 1), "x_embedding.x_embedding.bias": (d,)}
    expected |= {"y_embedding.y_embedding.weight": (10, d), "y_embedding.y_mask.weight": (1, d)}
    expected |= {"final_layer_norm.weight": (d,), "final_layer_norm.bias": (d,)}
    expected |= {"final_layer.weight": (10, d), "final_layer.bias": (10,)}
    assert state == expected
    config = json.loads((tmp_path / "config.json").read_text())
    assert config == {"dim": 16, "n_layers": 2, "n_heads": 2, "dim_output": 10, "task": "CLASSIFICATION"}


def test_a_tensor_that_the_layout_does_not_have_is_named(tabular: Tabular, tmp_path: Path) -> None:
    tabular.save(tmp_path)
    path = tmp_path / "model.safetensors"
    save_file({**load_file(path), "layers.9.linear1.bias": torch.zeros(3)}, path)
    with pytest.raises(ModelError, match=r"not known \['layers.9.linear1.bias'\]"):
        Tabular.load(tmp_path)


def test_windows_that_are_no_like_tables_have_no_loss(tabular: Tabular, items: Make) -> None:
    made = items(tabular, count=2)
    context = torch.from_numpy(made.context).clone()
    context[1, 0] = 4
    with pytest.raises(ValueError, match=r"got tables of \[4, 9\] columns, expected whole ones of one shape"):
        tabular.loss(context, torch.from_numpy(made.future))
