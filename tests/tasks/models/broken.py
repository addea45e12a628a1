"""The example family of docs/plugin, broken on purpose: each class fails the check that BROKEN names."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from tsfmscope.tasks.conformance import answers, checkpoints, states, tokens
from tsfmscope.tasks.models.common.attention import AttentionLayer
from tsfmscope.tasks.models.common.capture import Pass, Stack
from tsfmscope.tasks.models.patchtst import PatchTST
from tsfmscope.tasks.models.types import TokenKind, Tokens, WeightMatrix
from tsfmscope.tasks.series.types import Windows

PATH = Path(__file__).parents[3] / "docs" / "plugin" / "patch_line.py"


def _example() -> Any:
    """The module of the example package, from where it lies."""
    spec = importlib.util.spec_from_file_location("patch_line", PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["patch_line"] = module
    spec.loader.exec_module(module)
    return module


EXAMPLE = _example()
PatchLine: Any = EXAMPLE.PatchLine


def patches(found: Tokens, values: np.ndarray) -> Tokens:
    return dataclasses.replace(found, arrays={"patches": values.astype(np.float32)})


class Misnamed(PatchLine):
    name = "another"


class StrangeKinds(PatchLine):
    def _tokenize(self, windows: Windows) -> Tokens:
        found = super()._tokenize(windows)
        return dataclasses.replace(found, kinds={"encoder": found.kinds["encoder"] + np.int8(9)})


class FewerRows(PatchLine):
    def rows_per_window(self, context: int, horizon: int) -> Mapping[str, int]:
        return {"encoder": context // self.config["patch"]}  # the first patch, of fewer steps, is forgotten


class ReadsWeights(PatchLine):
    def _pass(self, tokens: Tokens) -> Pass:
        for module in self.network.modules():
            if isinstance(module, torch.nn.Linear):
                torch.ones(1, module.in_features) @ module.weight.t()
        return super()._pass(tokens)


class Remembers(PatchLine):
    """Keeps beside the tokens what its pass needs."""

    def _tokenize(self, windows: Windows) -> Tokens:
        found = super()._tokenize(windows)
        self.scales = {id(found): float(windows.context.std())}
        return found

    def _pass(self, tokens: Tokens) -> Pass:
        scale = self.scales.get(id(tokens), 1.0)
        return super()._pass(patches(tokens, tokens.arrays["patches"] * scale))


class LooksAtPadding(PatchLine):
    def _to_device(self, *arrays: np.ndarray) -> Any:
        return super()._to_device(arrays[0], np.zeros_like(arrays[1]))


class PaddingUnsaid(PatchLine):
    def _tokenize(self, windows: Windows) -> Tokens:
        found = super()._tokenize(windows)
        return dataclasses.replace(
            found, kinds={"encoder": np.full_like(found.kinds["encoder"], TokenKind.OBSERVATION)}
        )


class PaddingKnown(PaddingUnsaid):
    """Masks what is padding all the same."""

    def _pass(self, tokens: Tokens) -> Pass:
        padding = ~tokens.arrays["patches"][..., self.config["patch"] :].any(axis=2)
        kinds = np.where(padding, TokenKind.PADDING, TokenKind.OBSERVATION)
        return super()._pass(dataclasses.replace(tokens, kinds={"encoder": kinds}))


class ReadsTheFuture(PatchLine):
    def _tokenize(self, windows: Windows) -> Tokens:
        found, level = super()._tokenize(windows), np.nanmean(windows.future, axis=1)
        return patches(found, found.arrays["patches"] + level[:, None, None])


class ForecastsTheFuture(PatchLine):
    def _forecast(self, windows: Windows, levels: tuple[float, ...], samples: int, seeds: list[int]) -> np.ndarray:
        found: np.ndarray = super()._forecast(windows, levels, samples, seeds)
        return found + np.nan_to_num(windows.future)[:, None, :] * 0.01


class OneLayerMore(PatchLine):
    @property
    def layers(self) -> Mapping[str, int]:
        return {"encoder": len(self.network.blocks) + 1}


class DeeperConfig(PatchLine):
    def save(self, folder: Path) -> None:
        super().save(folder)
        Path(folder, "config.json").write_text(json.dumps({**self.config, "blocks": 3}))


class LeavesABlockOut(PatchLine):
    """Says of three blocks that they are two."""

    @property
    def layers(self) -> Mapping[str, int]:
        return {"encoder": len(self.network.blocks) - 1}

    def _pass(self, tokens: Tokens) -> Pass:
        blocks = self.network.blocks[:-1]
        return super()._pass(tokens)._replace(stacks={"encoder": Stack(blocks, self.network.norm)})


class BlocksInReverse(PatchLine):
    def _pass(self, tokens: Tokens) -> Pass:
        blocks = list(self.network.blocks)[::-1]
        return super()._pass(tokens)._replace(stacks={"encoder": Stack(blocks, self.network.norm)})


class NoScale(PatchLine):
    def _patches(self, context: np.ndarray) -> Any:
        values, padding, loc, scale = super()._patches(context)
        return np.where(scale[:, None] == 1, np.nan, values).astype(np.float32), padding, loc, scale


class Noisy(PatchLine):
    calls = 0

    def _pass(self, tokens: Tokens) -> Pass:
        self.calls += 1
        return super()._pass(patches(tokens, tokens.arrays["patches"] + 1e-4 * self.calls))


class NormsOverTheBatch(PatchLine):
    def _to_device(self, *arrays: np.ndarray) -> Any:
        return super()._to_device(arrays[0] - arrays[0].mean(axis=0), arrays[1])


class NormsOverTheDataSet(PatchLine):
    def _tokenize(self, windows: Windows) -> Tokens:
        found = super()._tokenize(windows)
        return patches(found, found.arrays["patches"] - found.arrays["patches"].mean(axis=0))


class ReadsNoContext(PatchLine):
    def _tokenize(self, windows: Windows) -> Tokens:
        found = super()._tokenize(windows)
        return patches(found, np.ones_like(found.arrays["patches"]))


class LeansOnTheFirst(PatchLine):
    def _pass(self, tokens: Tokens) -> Pass:
        values = tokens.arrays["patches"]
        return super()._pass(patches(tokens, values - values[:1]))


class Unseeded(PatchLine):
    @classmethod
    def new(cls, config: Mapping[str, Any], *, seed: int) -> Self:
        return cls(config, EXAMPLE.Network(**config))


class SameWeights(PatchLine):
    @classmethod
    def new(cls, config: Mapping[str, Any], *, seed: int) -> Any:
        return super().new(config, seed=0)


class TakesAnyKey(PatchLine):
    @classmethod
    def new(cls, config: Mapping[str, Any], *, seed: int) -> Any:
        return super().new({key: config[key] for key in EXAMPLE.CONFIG}, seed=seed)


class SavesRounded(PatchLine):
    def save(self, folder: Path) -> None:
        super().save(folder)
        path = Path(folder, "model.safetensors")
        save_file({name: one.half() for name, one in load_file(path).items()}, path)


class Pickles(PatchLine):
    def save(self, folder: Path) -> None:
        super().save(folder)
        torch.save(self.network.state_dict(), Path(folder, "model.pt"))


class OtherBytes(PatchLine):
    saves = 0

    def save(self, folder: Path) -> None:
        super().save(folder)
        self.saves += 1
        Path(folder, "config.json").write_text(json.dumps({**self.config, "saves": self.saves}))


class LoadsAnything(PatchLine):
    @classmethod
    def load(cls, folder: Path, *, device: str = "cpu") -> Any:
        try:
            return super().load(folder, device=device)
        except Exception:
            return cls.new(cls.example, seed=0)


class KeepsHalf(PatchLine):
    @classmethod
    def load(cls, folder: Path, *, device: str = "cpu") -> Any:
        model = super().load(folder, device=device)
        stored = next(iter(load_file(Path(folder, "model.safetensors")).values())).dtype
        model.network.to(stored)
        return model


class UpsideDown(PatchLine):
    direct_quantiles = False

    def _forecast(self, windows: Windows, levels: tuple[float, ...], samples: int, seeds: list[int]) -> np.ndarray:
        found: np.ndarray = super()._forecast(windows, levels, samples, seeds)
        return found[:, ::-1]


class SamplesAtWill(PatchLine):
    def _forecast(self, windows: Windows, levels: tuple[float, ...], samples: int, seeds: list[int]) -> np.ndarray:
        found: np.ndarray = super()._forecast(windows, levels, samples, seeds)
        return found + np.random.default_rng().normal(size=found.shape)


class SeedsTorch(PatchLine):
    def _forecast(self, windows: Windows, levels: tuple[float, ...], samples: int, seeds: list[int]) -> np.ndarray:
        torch.rand(1)
        found: np.ndarray = super()._forecast(windows, levels, samples, seeds)
        return found


class DeafToSeeds(PatchLine):
    direct_quantiles = False


class ForecastsTogether(PatchLine):
    def _forecast(self, windows: Windows, levels: tuple[float, ...], samples: int, seeds: list[int]) -> np.ndarray:
        found: np.ndarray = super()._forecast(windows, levels, samples, seeds)
        return found - found.mean(axis=0)


class NamesTwice(PatchLine):
    def weights(self) -> Iterator[WeightMatrix]:
        yield from super().weights()
        yield next(super().weights())


class CountsFromZero(PatchLine):
    def weights(self) -> Iterator[WeightMatrix]:
        return (dataclasses.replace(one, layer=one.layer - 1) for one in super().weights())


class ForgetsABlock(PatchLine):
    def weights(self) -> Iterator[WeightMatrix]:
        return (one for one in super().weights() if one.layer > 1)


class OddHeads(PatchLine):
    def weights(self) -> Iterator[WeightMatrix]:
        return (dataclasses.replace(one, heads=one.heads and 3) for one in super().weights())


class Rescales(PatchTST):
    """Halves its scores whenever an attention layer is written."""

    def attentions(self) -> Iterator[AttentionLayer]:
        def resize(module: Any, widths: Any) -> None:
            module.scaling /= 2

        return (dataclasses.replace(layer, resize=resize) for layer in super().attentions())


class NoQueries(PatchLine):
    def _pass(self, tokens: Tokens) -> Pass:
        return super()._pass(tokens)._replace(queries={})


class Detached(PatchLine):
    def loss(self, context: torch.Tensor, future: torch.Tensor) -> Any:
        return super().loss(context, future).detach()


class DeafLoss(PatchLine):
    def loss(self, context: torch.Tensor, future: torch.Tensor) -> Any:
        return super().loss(context, future) * 0 + 1


class LossPerWindow(PatchLine):
    def loss(self, context: torch.Tensor, future: torch.Tensor) -> Any:
        return super().loss(context, future).repeat(len(context))


BROKEN: list[tuple[Any, Any, str]] = [  # check, class, words of what it says
    (checkpoints.class_variables_are_valid, Misnamed, "got name 'another'"),
    (tokens.kinds_cover_windows, StrangeKinds, r"got kinds \[9\], expected TokenKind"),
    (tokens.rows_are_as_promised, FewerRows, "context 5: got .1. rows, promised 0"),
    (tokens.tokens_go_through_a_table, Remembers, "states after a table: .* is not the same bit for bit"),
    (tokens.padding_changes_nothing, LooksAtPadding, "states differ by"),
    (tokens.padding_changes_nothing, PaddingKnown, "rows of padding alone are not of kind PADDING"),
    (tokens.missing_steps_are_no_observation, PaddingUnsaid, "6 rows of an all-missing window"),
    (tokens.the_future_changes_no_state_before_it, ReadsTheFuture, "the future leaks into earlier rows"),
    (tokens.the_future_changes_no_forecast, ForecastsTheFuture, "the future leaks into a forecast"),
    (states.layers_come_in_order, OneLayerMore, r"expected .*\('encoder', 3, True\)"),
    (states.layers_are_those_of_the_config, DeeperConfig, "got 2 blocks, config.json states {'blocks': 3}"),
    (states.states_flow_from_block_to_block, LeavesABlockOut, "is a block left out"),
    (states.states_flow_from_block_to_block, BlocksInReverse, "is a block left out"),
    (states.states_are_finite, NoScale, "constant context: HealthError"),
    (states.the_same_input_gives_the_same_bits, Noisy, "states: .* is not the same bit for bit"),
    (states.states_do_not_depend_on_the_batch, NormsOverTheBatch, "differ by"),
    (states.a_window_changes_itself_alone, NormsOverTheDataSet, "another window's states change"),
    (states.a_window_changes_itself_alone, ReadsNoContext, "no state changes with the context"),
    (states.chosen_rows_are_those_of_all, LeansOnTheFirst, "differ by"),
    (checkpoints.a_seed_decides_the_weights, Unseeded, "global generator moved"),
    (checkpoints.a_seed_decides_the_weights, SameWeights, "another seed draws the same weights"),
    (checkpoints.a_wrong_config_is_named, TakesAnyKey, "was taken without a word"),
    (checkpoints.a_saved_model_loads_as_it_was, SavesRounded, "states of the loaded model"),
    (checkpoints.a_checkpoint_is_safe_and_whole, Pickles, r"\['model.pt'\] are pickled"),
    (checkpoints.a_checkpoint_is_safe_and_whole, OtherBytes, "config.json has other bytes when saved again"),
    (checkpoints.a_broken_checkpoint_is_refused, LoadsAnything, "no folder: loads without a word"),
    (checkpoints.half_precision_loads_in_float32, KeepsHalf, "float16: parameters are .*expected float32"),
    (answers.quantiles_are_in_order, UpsideDown, "100% of quantiles lie below"),
    (answers.seeds_decide_a_forecast, SamplesAtWill, "forecasts under the same seeds"),
    (answers.seeds_decide_a_forecast, SeedsTorch, "global generator moved"),
    (answers.seeds_decide_a_forecast, DeafToSeeds, "other seeds draw the same samples"),
    (answers.forecasts_do_not_depend_on_the_batch, ForecastsTogether, "differ by"),
    (answers.matrices_are_named_once, NamesTwice, "encoder block 1 q .self. comes twice"),
    (answers.matrices_are_named_once, CountsFromZero, "blocks count from 1 to 2"),
    (answers.matrices_are_named_once, ForgetsABlock, r"blocks \[1\] have no matrix"),
    (answers.matrices_are_named_once, OddHeads, "ValueError: .*expected a multiple of 3"),
    (answers.attention_is_written_as_it_was_read, Rescales, "after nothing was changed"),
    (answers.it_runs_in_bfloat16, ReadsWeights, "RuntimeError: .*dtype"),
    (answers.claims_are_kept, NoQueries, "names no query projection"),
    (answers.gradient_steps_lower_the_loss, DeafLoss, "loss 1.0000 is 1.0000 after 10 steps"),
    (answers.gradient_steps_lower_the_loss, Detached, "does not require grad"),
    (answers.gradient_steps_lower_the_loss, LossPerWindow, "expected one finite number"),
]
