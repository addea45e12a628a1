"""The example family of docs/plugin with forecasts, matrices or losses that run, and mean something else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from tests.tsfmscope.models.broken import PatchLine, after, before, variant
from tsfmscope.conformance import answers, matrices, states
from tsfmscope.models.common.capture import Pass
from tsfmscope.models.types import Tokens, WeightMatrix
from tsfmscope.series.types import Windows


def change_patches(
    title: str, change: Callable[[Any, np.ndarray, np.ndarray, np.ndarray, np.ndarray], Any], **attributes: Any
) -> Any:
    """Return a family with other patches: change(model, values, padding, loc, scale)."""
    return after(title, "_patches", lambda model, found, context: change(model, *found), **attributes)


def blank_last(model: Any, values: np.ndarray, *others: np.ndarray) -> tuple[np.ndarray, ...]:
    """Leave the last step to loc and scale alone."""
    values[:, -1, model.config["patch"] - 1] = 0
    return values, *others


def shuffle_patches(model: Any, values: np.ndarray, padding: np.ndarray, *others: np.ndarray) -> tuple[np.ndarray, ...]:
    """Keep the last patch last, and put those before it in reverse."""
    rows = np.r_[np.arange(values.shape[1] - 1)[::-1], values.shape[1] - 1]
    return values[:, rows], padding[:, rows], *others


def swap(title: str, first: str, second: str, base: Any = PatchLine) -> Any:
    """Return a family that gives two matrices each other's name."""
    other = {first: second, second: first}
    return after(title, "weights", lambda _, ws: (replace(w, name=other.get(w.name, w.name)) for w in ws), base)


def name_values_twice(model: Any, matrices: Any) -> Any:
    """Name v under another layer of attention once more."""
    for named in matrices:
        yield named
        if named.name == "v":
            yield replace(named, attention="cross")


def naive(model: Any, windows: Windows, levels: tuple[float, ...], samples: int, seeds: list[int]) -> np.ndarray:
    """Forecast from mean and spread of the context, without the network."""
    loc, scale = windows.context.mean(axis=1), windows.context.std(axis=1)
    values = windows.context[:, -1:] + scale[:, None] * (np.array(levels) - 0.5) + 0 * loc[:, None]
    return np.repeat(values[:, :, None], windows.horizon, axis=2)


def noise(model: Any, windows: Windows, levels: tuple[float, ...], samples: int, seeds: list[int]) -> np.ndarray:
    """Draw noise from the seed alone."""
    drawn = np.stack([np.random.default_rng(seed).normal(size=(samples, windows.horizon)) for seed in seeds])
    return np.moveaxis(np.quantile(drawn, levels, axis=1), 0, 1)


def scaled_noise(model: Any, windows: Windows, *how: Any) -> np.ndarray:
    """Draw noise around the context, from the seed alone."""
    loc, scale = windows.context.mean(axis=1), windows.context.std(axis=1)
    return noise(model, windows, *how) * scale[:, None, None] + loc[:, None, None]


class Square(PatchLine):
    """As many inner units as states, so that shapes tell nothing."""

    @classmethod
    def new(cls, config: Mapping[str, Any], *, seed: int) -> Any:
        model = super().new(config, seed=seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            for block in model.network.blocks:
                block.mlp_in = torch.nn.Linear(model.width, model.width)
                block.mlp_out = torch.nn.Linear(model.width, model.width)
        return model


class BlocksShareWeights(PatchLine):
    """Uses the last block's weights in the first block too."""

    def _pass(self, tokens: Tokens) -> Pass:
        blocks = self.network.blocks
        for name, part in blocks[0].named_parameters():
            part.data = blocks[-1].get_parameter(name).data
        return super()._pass(tokens)


def reverse_blocks(model: Any, named: WeightMatrix) -> WeightMatrix:
    return replace(named, layer=len(model.network.blocks) + 1 - named.layer)


SeededNoise = variant("SeededNoise", _forecast=noise, direct_quantiles=False)
# Of a direct head, which an untrained model need not have in order.
LevelsReversed = after("LevelsReversed", "_forecast", lambda _, values, *more: values[:, ::-1])
WRONG_NUMBERS: list[tuple[Any, Any, str]] = [
    (states.rows_are_in_time_order,
     before("DropsTheLastStep", "_patches",
            lambda _, context: (np.concatenate((np.full((len(context), 1), np.nan), context[:, :-1]), axis=1),)),
     "no state changes with the last step"),
    (states.rows_are_in_time_order, change_patches("BlanksTheLastStep", blank_last),
     "the last step changes rows .*is the step not read"),
    (states.rows_are_in_time_order,
     change_patches("PatchesReversed", lambda _, v, padding, *loc: (v[:, ::-1].copy(), padding[:, ::-1].copy(), *loc)),
     "are rows in another order than time"),
    (states.rows_are_in_time_order, change_patches("PatchesShuffled", shuffle_patches), "expected ascending rows"),
    (answers.forecasts_keep_the_unit_of_the_series,
     change_patches("NotRescaled", lambda _, *found: (*found[:3], np.ones_like(found[3]))),
     "a context times 4 plus 0 has another forecast"),
    (answers.forecasts_keep_the_unit_of_the_series,
     change_patches("NotShiftedBack", lambda _, *found: (*found[:2], np.zeros_like(found[2]), found[3])),
     "a context times 1 plus 64 has another forecast"),
    (answers.forecasts_keep_the_unit_of_the_series,  # declares that its forecasts follow nothing
     change_patches("NeitherNorDeclared", lambda _, v, padding, loc, scale: (v, padding, 0 * loc, 0 * scale + 1),
                    equivariant=frozenset()),
     "a forecast only 1.0e.00 times as large"),
    (answers.forecasts_keep_the_unit_of_the_series,
     variant("MisspeltChange", equivariant=frozenset({"scale", "translation"})),
     r"got \['translation'\], expected some of"),
    (answers.forecasts_keep_the_unit_of_the_series, SeededNoise, "has another forecast"),
    (answers.forecasts_depend_on_the_context, SeededNoise, "have equal forecasts under one seed"),
    (answers.forecasts_depend_on_the_context,
     before("ForecastsFromAStepBefore", "_forecast",
            lambda _, windows, *how: (replace(windows, context=windows.context[:, :-1]), *how)),
     "another last step changes 0 of 5"),
    (answers.every_block_changes_states_and_forecasts, variant("Naive", _forecast=naive),
     "block 1 do not change the forecast"),
    (answers.every_block_changes_states_and_forecasts,
     variant("ScaledNoise", _forecast=scaled_noise, direct_quantiles=False), "block 1 do not change the forecast"),
    (answers.every_block_changes_states_and_forecasts, BlocksShareWeights,
     r"block 2 change the states \[.'encoder', 1, False.\]"),
    (answers.quantiles_are_in_order, LevelsReversed, "100% of quantiles 0.9 lie below those of 0.1 after 40 training"),
    (matrices.no_matrix_of_a_block_is_left_out, after("NamesHalf", "weights", lambda _, ws: list(ws)[::2]),
     r"does not name \['k.weight', 'o.weight', 'mlp_out.weight'"),
    (matrices.no_matrix_of_a_block_is_left_out, after("NamesValuesTwice", "weights", name_values_twice),
     r"\['v'\] hold numbers that another name has"),
    (matrices.no_matrix_of_a_block_is_left_out,
     after("BlocksNamedInReverse", "weights", lambda model, ws: (reverse_blocks(model, w) for w in ws)),
     "block 1: `weights` does not name"),
    (matrices.no_matrix_of_a_block_is_left_out,
     after("NamesTransposed", "weights", lambda _, ws: (replace(w, matrix=w.matrix.T.copy()) for w in ws)),
     "does not name .* as .out, in."),
    (matrices.matrices_have_the_width_of_the_states, swap("Swaps", "mlp_in", "mlp_out"),
     r"mlp_out, shape \(32, 16\): rows, expected the width 16"),
    (matrices.matrices_fit_their_names, swap("SwapsInASquare", "mlp_in", "mlp_out", Square),
     "does not depend on it; is it an mlp_out"),
    (matrices.matrices_fit_their_names, swap("SwapsQueriesAndKeys", "q", "k"),
     "one key changes no other row of what o reads"),
    (matrices.matrices_fit_their_names, swap("SwapsValuesAndOutputs", "v", "o"), "one key changes no other row"),
    (matrices.matrices_fit_their_names, swap("SwapsKeysAndValues", "k", "v"),
     "what o reads is no linear function of it"),
    (answers.the_loss_depends_on_context_and_future,
     before("LossWithoutFuture", "loss", lambda _, context, future: (context, context[:, -future.shape[1] :])),
     "is the future read"),
    (answers.the_loss_depends_on_context_and_future,
     before("LossWithoutContext", "loss",
            lambda _, context, future: (torch.arange(context.numel()).reshape(context.shape).float().sin(), future)),
     "is the context read"),
]  # fmt: skip
