"""The example family of docs/plugin, broken on purpose: a check, a family that fails it, and words of the error."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from tsfmscope.conformance import answers, checkpoints, matrices, states, tokens
from tsfmscope.models.common.capture import Pass, Stack
from tsfmscope.models.patchtst import PatchTST
from tsfmscope.models.types import TokenKind, Tokens, WeightMatrix
from tsfmscope.series.types import Windows

PATH = Path(__file__).parents[3] / "docs" / "plugin" / "patch_line.py"


def _example() -> Any:
    """Load the module of the example package from its folder."""
    spec = importlib.util.spec_from_file_location("patch_line", PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["patch_line"] = module
    spec.loader.exec_module(module)
    return module


EXAMPLE = _example()
PatchLine: Any = EXAMPLE.PatchLine


def variant(title: str, base: Any = PatchLine, /, **attributes: Any) -> Any:
    """Return a subclass with other attributes."""
    return type(title, (base,), attributes)


def after(title: str, method: str, change: Callable[..., Any], base: Any = PatchLine, /, **attributes: Any) -> Any:
    """Return a subclass whose method returns change(model, result, *arguments)."""

    def changed(self: Any, *arguments: Any) -> Any:
        return change(self, getattr(super(subclass, self), method)(*arguments), *arguments)

    subclass = variant(title, base, **{method: changed}, **attributes)
    return subclass


def before(title: str, method: str, change: Callable[..., tuple[Any, ...]], base: Any = PatchLine) -> Any:
    """Return a subclass whose method is called with change(model, *arguments)."""

    def changed(self: Any, *arguments: Any) -> Any:
        return getattr(super(subclass, self), method)(*change(self, *arguments))

    subclass = variant(title, base, **{method: changed})
    return subclass


def patches(found: Tokens, values: np.ndarray) -> Tokens:
    return dataclasses.replace(found, arrays={"patches": values.astype(np.float32)})


def values_of(found: Tokens) -> np.ndarray:
    return found.arrays["patches"]


def kinds(found: Tokens, values: np.ndarray) -> Tokens:
    return dataclasses.replace(found, kinds={"encoder": values})


def write_config(model: Any, folder: Path, **changes: Any) -> None:
    Path(folder, "config.json").write_text(json.dumps({**model.config, **changes}))


class ReadsWeights(PatchLine):
    def _pass(self, tokens: Tokens) -> Pass:
        for module in self.network.modules():
            if isinstance(module, torch.nn.Linear):
                torch.ones(1, module.in_features) @ module.weight.t()
        return super()._pass(tokens)


class Remembers(PatchLine):
    """Keeps outside the tokens what its pass needs."""

    def _tokenize(self, windows: Windows) -> Tokens:
        found = super()._tokenize(windows)
        self.scales = {id(found): float(windows.context.std())}
        return found

    def _pass(self, tokens: Tokens) -> Pass:
        scale = self.scales.get(id(tokens), 1.0)
        return super()._pass(patches(tokens, tokens.arrays["patches"] * scale))


class Noisy(PatchLine):
    calls = 0

    def _pass(self, tokens: Tokens) -> Pass:
        self.calls += 1
        return super()._pass(patches(tokens, tokens.arrays["patches"] + 1e-4 * self.calls))


class SameWeights(PatchLine):
    @classmethod
    def new(cls, config: Mapping[str, Any], *, seed: int) -> Any:
        return super().new(config, seed=0)


class TakesAnyKey(PatchLine):
    @classmethod
    def new(cls, config: Mapping[str, Any], *, seed: int) -> Any:
        return super().new({key: config[key] for key in EXAMPLE.Config.model_fields}, seed=seed)


class OtherBytes(PatchLine):
    saves = 0

    def save(self, folder: Path) -> None:
        super().save(folder)
        self.saves += 1
        write_config(self, folder, saves=self.saves)


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


def round_weights(model: Any, saved: None, folder: Path) -> None:
    path = Path(folder, "model.safetensors")
    save_file({name: values.half() for name, values in load_file(path).items()}, path)


def pickle_weights(model: Any, saved: None, folder: Path) -> None:
    torch.save(model.network.state_dict(), Path(folder, "model.pt"))


def with_blocks(one_pass: Pass, model: Any, blocks: Any) -> Pass:
    return one_pass._replace(stacks={"encoder": Stack(blocks, model.network.norm)})


def padding_is_known(model: Any, found: Tokens) -> tuple[Tokens]:
    padding = ~values_of(found)[..., model.config["patch"] :].any(axis=2)
    return (kinds(found, np.where(padding, TokenKind.PADDING, TokenKind.OBSERVATION)),)


def halve_scores(module: Any, widths: Any) -> None:
    module.scaling /= 2


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


PaddingUnsaid = after(
    "PaddingUnsaid",
    "_tokenize",
    lambda _, t, windows: kinds(t, np.full_like(t.kinds["encoder"], TokenKind.OBSERVATION)),
)
SeededNoise = variant("SeededNoise", _forecast=noise, direct_quantiles=False)
# Of a direct head, which an untrained model need not have in order.
LevelsReversed = after("LevelsReversed", "_forecast", lambda _, values, *more: values[:, ::-1])
FAULTS: list[tuple[Any, Any, str]] = [
    (checkpoints.class_variables_are_valid, variant("Misnamed", name="another"), "got name 'another'"),
    (tokens.kinds_cover_windows,
     after("StrangeKinds", "_tokenize", lambda _, t, windows: kinds(t, t.kinds["encoder"] + np.int8(9))),
     r"got kinds \[9\], expected TokenKind"),
    (tokens.rows_are_as_promised,  # the first patch, of fewer steps, is forgotten
     variant("FewerRows", rows_per_window=lambda model, context, _: {"encoder": context // model.config["patch"]}),
     "context 5: got .1. rows, promised 0"),
    (tokens.tokens_go_through_a_table, Remembers, "states after a table: .* is not the same bit for bit"),
    (tokens.padding_changes_nothing,
     before("LooksAtPadding", "_to_device", lambda _, values, padding: (values, np.zeros_like(padding))),
     "states differ by"),
    (tokens.padding_changes_nothing, before("PaddingKnown", "_pass", padding_is_known, PaddingUnsaid),
     "rows of padding alone are not of kind PADDING"),
    (tokens.missing_steps_are_no_observation, PaddingUnsaid, "6 rows of an all-missing window"),
    (tokens.the_future_changes_no_state_before_it,
     after("ReadsTheFuture", "_tokenize",
           lambda _, t, windows: patches(t, values_of(t) + np.nanmean(windows.future, axis=1)[:, None, None])),
     "the future leaks into earlier rows"),
    (tokens.the_future_changes_no_forecast,
     after("ForecastsTheFuture", "_forecast",
           lambda _, values, windows, *more: values + np.nan_to_num(windows.future)[:, None, :] * 0.01),
     "the future leaks into a forecast"),
    (states.layers_come_in_order,
     variant("OneLayerMore", layers=property(lambda model: {"encoder": len(model.network.blocks) + 1})),
     r"expected .*\('encoder', 3, True\)"),
    (states.layers_are_those_of_the_config,
     after("DeeperConfig", "save", lambda model, _, folder: write_config(model, folder, blocks=3)),
     "got 2 blocks, config.json states {'blocks': 3}"),
    (states.states_flow_from_block_to_block,
     after("LeavesABlockOut", "_pass", lambda model, p, _: with_blocks(p, model, model.network.blocks[:-1]),
           layers=property(lambda model: {"encoder": len(model.network.blocks) - 1})),
     "is a block left out"),
    (states.states_flow_from_block_to_block,
     after("BlocksInReverse", "_pass", lambda model, p, _: with_blocks(p, model, list(model.network.blocks)[::-1])),
     "is a block left out"),
    (states.states_are_finite,
     after("NoScale", "_patches",
           lambda _, p, context: (np.where(p[3][:, None] == 1, np.nan, p[0]).astype(np.float32), *p[1:])),
     "constant context: HealthError"),
    (states.the_same_input_gives_the_same_bits, Noisy, "states: .* is not the same bit for bit"),
    (states.states_do_not_depend_on_the_batch,
     before("NormsOverTheBatch", "_to_device", lambda _, values, padding: (values - values.mean(axis=0), padding)),
     "differ by"),
    (states.a_window_changes_itself_alone,
     after("NormsOverTheDataSet", "_tokenize",
           lambda _, t, windows: patches(t, values_of(t) - values_of(t).mean(axis=0))),
     "another window's states change"),
    (states.a_window_changes_itself_alone,
     after("ReadsNoContext", "_tokenize", lambda _, t, windows: patches(t, np.ones_like(values_of(t)))),
     "no state changes with the context"),
    (states.chosen_rows_are_those_of_all,
     before("LeansOnTheFirst", "_pass", lambda _, t: (patches(t, values_of(t) - values_of(t)[:1]),)), "differ by"),
    (checkpoints.a_seed_decides_the_weights,
     variant("Unseeded", new=classmethod(lambda cls, config, *, seed: cls(config, EXAMPLE.Network(**config)))),
     "global generator moved"),
    (checkpoints.a_seed_decides_the_weights, SameWeights, "another seed draws the same weights"),
    (checkpoints.a_wrong_config_is_named, TakesAnyKey, "was taken without a word"),
    (checkpoints.a_saved_model_loads_as_it_was, after("SavesRounded", "save", round_weights),
     "states of the loaded model"),
    (checkpoints.a_checkpoint_is_safe_and_whole, after("Pickles", "save", pickle_weights),
     r"\['model.pt'\] are pickled"),
    (checkpoints.a_checkpoint_is_safe_and_whole, OtherBytes, "config.json has other bytes when saved again"),
    (checkpoints.a_broken_checkpoint_is_refused, LoadsAnything, "no folder: loads without a word"),
    (checkpoints.half_precision_loads_in_float32, KeepsHalf, "float16: parameters are .*expected float32"),
    (answers.quantiles_are_in_order,
     after("UpsideDown", "_forecast", lambda _, values, *more: values[:, ::-1], direct_quantiles=False),
     "100% of quantiles lie below"),
    (answers.seeds_decide_a_forecast,
     after("SamplesAtWill", "_forecast",
           lambda _, values, *more: values + np.random.default_rng().normal(size=values.shape)),
     "forecasts under the same seeds"),
    (answers.seeds_decide_a_forecast,
     after("SeedsTorch", "_forecast", lambda _, values, *more: (values, torch.rand(1))[0]), "global generator moved"),
    (answers.seeds_decide_a_forecast, variant("DeafToSeeds", direct_quantiles=False),
     "other seeds draw the same samples"),
    (answers.forecasts_do_not_depend_on_the_batch,
     after("ForecastsTogether", "_forecast", lambda _, values, *more: values - values.mean(axis=0)), "differ by"),
    (matrices.matrices_are_named_once, after("NamesTwice", "weights", lambda _, ws: (ws := list(ws)) + ws[:1]),
     "encoder block 1 q .self. comes twice"),
    (matrices.matrices_are_named_once,
     after("CountsFromZero", "weights", lambda _, ws: (replace(w, layer=w.layer - 1) for w in ws)),
     "blocks count from 1 to 2"),
    (matrices.matrices_are_named_once,
     after("ForgetsABlock", "weights", lambda _, ws: (w for w in ws if w.layer > 1)),
     r"blocks \[1\] have no matrix"),
    (matrices.matrices_are_named_once,
     after("OddHeads", "weights", lambda _, ws: (replace(w, heads=w.heads and 3) for w in ws)),
     "ValueError: .*expected a multiple of 3"),
    (matrices.attention_is_written_as_it_was_read,
     after("Rescales", "attentions", lambda _, layers: (replace(one, resize=halve_scores) for one in layers), PatchTST),
     "after nothing was changed"),
    (answers.it_runs_in_bfloat16, ReadsWeights, "RuntimeError: .*dtype"),
    (answers.claims_are_kept, after("NoQueries", "_pass", lambda _, p, tokens: p._replace(queries={})),
     "names no query projection"),
    (answers.gradient_steps_lower_the_loss, after("DeafLoss", "loss", lambda _, loss, *batch: loss * 0 + 1),
     "loss 1.0000 is 1.0000 after 10 steps"),
    (answers.gradient_steps_lower_the_loss, after("Detached", "loss", lambda _, loss, *batch: loss.detach()),
     "does not require grad"),
    (answers.gradient_steps_lower_the_loss,
     after("LossPerWindow", "loss", lambda _, loss, context, future: loss.repeat(len(context))),
     "expected one finite number"),
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
