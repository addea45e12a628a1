"""The example family of docs/plugin with forecasts, matrices or losses that run, and mean something else."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from tests.tasks.models.broken import PatchLine
from tsfmscope.tasks.conformance import answers, forecasts, matrices, order, roles
from tsfmscope.tasks.models.common.capture import Pass
from tsfmscope.tasks.models.types import Tokens, WeightMatrix
from tsfmscope.tasks.series.types import Windows


class NotRescaled(PatchLine):
    def _patches(self, context: np.ndarray) -> Any:
        values, padding, loc, scale = super()._patches(context)
        return values, padding, loc, np.ones_like(scale)


class NotShiftedBack(PatchLine):
    def _patches(self, context: np.ndarray) -> Any:
        values, padding, loc, scale = super()._patches(context)
        return values, padding, np.zeros_like(loc), scale


class NeitherNorDeclared(PatchLine):
    """Declares that its forecasts follow nothing, and leaves them in scaled units."""

    equivariant = frozenset[str]()

    def _patches(self, context: np.ndarray) -> Any:
        values, padding, loc, scale = super()._patches(context)
        return values, padding, np.zeros_like(loc), np.ones_like(scale)


class MisspeltChange(PatchLine):
    equivariant = frozenset({"scale", "translation"})


class DropsTheLastStep(PatchLine):
    def _patches(self, context: np.ndarray) -> Any:
        before = np.full((len(context), 1), np.nan)
        return super()._patches(np.concatenate((before, context[:, :-1]), axis=1))


class BlanksTheLastStep(PatchLine):
    """Reads the last step for loc and scale alone."""

    def _patches(self, context: np.ndarray) -> Any:
        values, padding, loc, scale = super()._patches(context)
        values[:, -1, self.config["patch"] - 1] = 0
        return values, padding, loc, scale


class ForecastsFromAStepBefore(PatchLine):
    def _forecast(self, windows: Windows, levels: tuple[float, ...], samples: int, seeds: list[int]) -> np.ndarray:
        earlier = dataclasses.replace(windows, context=windows.context[:, :-1])
        found: np.ndarray = super()._forecast(earlier, levels, samples, seeds)
        return found


class PatchesReversed(PatchLine):
    def _patches(self, context: np.ndarray) -> Any:
        values, padding, loc, scale = super()._patches(context)
        return values[:, ::-1].copy(), padding[:, ::-1].copy(), loc, scale


class PatchesShuffled(PatchLine):
    """The last patch is the last, and those before it are in reverse."""

    def _patches(self, context: np.ndarray) -> Any:
        values, padding, loc, scale = super()._patches(context)
        rows = np.r_[np.arange(values.shape[1] - 1)[::-1], values.shape[1] - 1]
        return values[:, rows], padding[:, rows], loc, scale


class NamesHalf(PatchLine):
    def weights(self) -> Iterator[WeightMatrix]:
        return (one for n, one in enumerate(super().weights()) if n % 2 == 0)


class NamesValuesTwice(PatchLine):
    """Names v under another layer of attention once more."""

    def weights(self) -> Iterator[WeightMatrix]:
        for one in super().weights():
            yield one
            if one.name == "v":
                yield dataclasses.replace(one, attention="cross")


class BlocksNamedInReverse(PatchLine):
    def weights(self) -> Iterator[WeightMatrix]:
        blocks = len(self.network.blocks)
        return (dataclasses.replace(one, layer=blocks + 1 - one.layer) for one in super().weights())


class NamesTransposed(PatchLine):
    def weights(self) -> Iterator[WeightMatrix]:
        return (dataclasses.replace(one, matrix=one.matrix.T.copy()) for one in super().weights())


class Swaps(PatchLine):
    """Gives two matrices each other's name."""

    names: tuple[str, str] = ("mlp_in", "mlp_out")

    def weights(self) -> Iterator[WeightMatrix]:
        other = {**dict([self.names]), **dict([self.names[::-1]])}
        return (dataclasses.replace(one, name=other.get(one.name, one.name)) for one in super().weights())


class SwapsQueriesAndKeys(Swaps):
    names = ("q", "k")


class SwapsValuesAndOutputs(Swaps):
    names = ("v", "o")


class SwapsKeysAndValues(Swaps):
    names = ("k", "v")


class Square(Swaps):
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


class Naive(PatchLine):
    """Forecasts from mean and spread of the context, without its network."""

    def _forecast(self, windows: Windows, levels: tuple[float, ...], samples: int, seeds: list[int]) -> np.ndarray:
        loc, scale = windows.context.mean(axis=1), windows.context.std(axis=1)
        values = windows.context[:, -1:] + scale[:, None] * (np.array(levels) - 0.5) + 0 * loc[:, None]
        return np.repeat(values[:, :, None], windows.horizon, axis=2)


class ScaledNoise(PatchLine):
    """Draws noise around the context, from the seed alone."""

    direct_quantiles = False

    def _forecast(self, windows: Windows, levels: tuple[float, ...], samples: int, seeds: list[int]) -> np.ndarray:
        noise = np.stack([np.random.default_rng(seed).normal(size=(samples, windows.horizon)) for seed in seeds])
        loc, scale = windows.context.mean(axis=1), windows.context.std(axis=1)
        values = np.moveaxis(np.quantile(noise, levels, axis=1), 0, 1)
        return values * scale[:, None, None] + loc[:, None, None]


class SeededNoise(PatchLine):
    direct_quantiles = False

    def _forecast(self, windows: Windows, levels: tuple[float, ...], samples: int, seeds: list[int]) -> np.ndarray:
        noise = np.stack([np.random.default_rng(seed).normal(size=(samples, windows.horizon)) for seed in seeds])
        return np.moveaxis(np.quantile(noise, levels, axis=1), 0, 1)


class BlocksShareWeights(PatchLine):
    """Uses the last block's weights in the first block too."""

    def _pass(self, tokens: Tokens) -> Pass:
        blocks = self.network.blocks
        for name, part in blocks[0].named_parameters():
            part.data = blocks[-1].get_parameter(name).data
        return super()._pass(tokens)


class LevelsReversed(PatchLine):
    """Of a direct head, which an untrained model need not have in order."""

    def _forecast(self, windows: Windows, levels: tuple[float, ...], samples: int, seeds: list[int]) -> np.ndarray:
        found: np.ndarray = super()._forecast(windows, levels, samples, seeds)
        return found[:, ::-1]


class LossWithoutFuture(PatchLine):
    def loss(self, context: torch.Tensor, future: torch.Tensor) -> Any:
        return super().loss(context, context[:, -future.shape[1] :])


class LossWithoutContext(PatchLine):
    def loss(self, context: torch.Tensor, future: torch.Tensor) -> Any:
        return super().loss(torch.arange(context.shape[1]).expand_as(context).float(), future)


WRONG_NUMBERS: list[tuple[Any, Any, str]] = [  # check, class, words of its message
    (order.rows_are_in_time_order, DropsTheLastStep, "no state changes with the last step"),
    (order.rows_are_in_time_order, BlanksTheLastStep, "the last step changes rows .*is the step not read"),
    (order.rows_are_in_time_order, PatchesReversed, "are rows in another order than time"),
    (order.rows_are_in_time_order, PatchesShuffled, "expected ascending rows"),
    (forecasts.forecasts_keep_the_unit_of_the_series, NotRescaled, "a context times 4 plus 0 has another forecast"),
    (forecasts.forecasts_keep_the_unit_of_the_series, NotShiftedBack, "a context times 1 plus 64 has another forecast"),
    (forecasts.forecasts_keep_the_unit_of_the_series, NeitherNorDeclared, "a forecast only 1.0e.00 times as large"),
    (forecasts.forecasts_keep_the_unit_of_the_series, MisspeltChange, r"got \['translation'\], expected some of"),
    (forecasts.forecasts_keep_the_unit_of_the_series, SeededNoise, "has another forecast"),
    (forecasts.forecasts_depend_on_the_context, SeededNoise, "have equal forecasts under one seed"),
    (forecasts.forecasts_depend_on_the_context, ForecastsFromAStepBefore, "another last step changes 0 of 5"),
    (forecasts.every_block_changes_states_and_forecasts, Naive, "block 1 do not change the forecast"),
    (forecasts.every_block_changes_states_and_forecasts, ScaledNoise, "block 1 do not change the forecast"),
    (
        forecasts.every_block_changes_states_and_forecasts,
        BlocksShareWeights,
        r"block 2 change the states \[.'encoder', 1, False.\]",
    ),
    (answers.quantiles_are_in_order, LevelsReversed, "100% of quantiles 0.9 lie below those of 0.1 after 40 training"),
    (matrices.no_matrix_of_a_block_is_left_out, NamesHalf, r"does not name \['k.weight', 'o.weight', 'mlp_out.weight'"),
    (matrices.no_matrix_of_a_block_is_left_out, NamesValuesTwice, r"\['v'\] hold numbers that another name has"),
    (matrices.no_matrix_of_a_block_is_left_out, BlocksNamedInReverse, "block 1: `weights` does not name"),
    (matrices.no_matrix_of_a_block_is_left_out, NamesTransposed, "does not name .* as .out, in."),
    (matrices.matrices_have_the_width_of_the_states, Swaps, r"mlp_out, shape \(32, 16\): rows, expected the width 16"),
    (roles.matrices_fit_their_names, Square, "does not depend on it; is it an mlp_out"),
    (roles.matrices_fit_their_names, SwapsQueriesAndKeys, "one key changes no other row of what o reads"),
    (roles.matrices_fit_their_names, SwapsValuesAndOutputs, "one key changes no other row"),
    (roles.matrices_fit_their_names, SwapsKeysAndValues, "what o reads is no linear function of it"),
    (answers.the_loss_depends_on_context_and_future, LossWithoutFuture, "is the future read"),
    (answers.the_loss_depends_on_context_and_future, LossWithoutContext, "is the context read"),
]
