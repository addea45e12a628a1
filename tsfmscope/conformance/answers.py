"""Checks of forecasts, logits and the loss: their units, their order, and what they depend on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tsfmscope.conformance.matrices import blocks_of
from tsfmscope.conformance.states import with_other_last_step
from tsfmscope.conformance.subject import (
    ROUNDING,
    NotApplicable,
    Subject,
    add_noise,
    demand,
    distance,
    same_bits,
    states_of,
)
from tsfmscope.models.base import Family, Forecaster
from tsfmscope.models.common.capture import in_batches
from tsfmscope.models.common.layers import run_in
from tsfmscope.series.types import Windows

if TYPE_CHECKING:
    import torch

# Number of gradient steps, and learning rate, that must lower the loss of one batch.
STEPS, RATE = 10, 1e-3
LEVELS = (0.1, 0.4, 0.5, 0.9)
# Share of a layer's norm that weights in bfloat16 may change; in our families it is at most 0.015.
ROUNDED = 0.05
# Steps and learning rate of a training that orders the quantiles of an untrained head.
LEARNT_STEPS, LEARNT_RATE = 40, 1e-2
# Number of futures of one context, and share of quantiles that may still be out of order.
LEARNT_FROM, LEARNT_WRONG = 8, 0.25
# Share of quantiles below the one of a lower level that a trained quantile head may have.
CROSSED = 0.01
# Factor and offset: exact in float32 for values in GRID.
CHANGES = {"scale": (4.0, 0.0), "shift": (1.0, 64.0)}
# Values are multiples of 1 / GRID.
GRID = 64
# Share of the largest forecast that rounding, or the least scale of some models, may change.
UNIT_TOLERANCE = 1e-3
# Factor on a context; its forecast must grow by at least a tenth of it, whatever is declared.
LARGER = 1000.0
# Noise on the weights of a block, relative to their size.
REWRITTEN = 1.0
FORECAST_SEED, SAMPLES = 3, 4


def quantiles_are_in_order(subject: Subject) -> str:
    """Quantiles of a forecast rise with their level; those of an untrained head do after a short training."""
    model, windows = subject.forecaster, subject.windows()
    forecast = model.forecast(windows, levels=LEVELS, seeds=list(range(len(windows))))
    crossed = float((np.diff(forecast.values, axis=1) < 0).mean())
    if crossed > CROSSED and model.direct_quantiles and subject.config is not None:
        return _quantiles_are_learnt(subject, crossed)
    in_order = crossed <= CROSSED * model.direct_quantiles
    demand(in_order, f"{crossed:.0%} of quantiles lie below the one of a lower level")
    return f"levels {LEVELS}, {windows.horizon} steps"


def _quantiles_are_learnt(subject: Subject, crossed: float) -> str:
    """Train an untrained head on futures that differ, and return what was seen.

    Failed where more than LEARNT_WRONG of the highest quantiles are below the lowest.
    """
    model, window = subject.copy(), subject.windows(1)
    assert isinstance(model, Forecaster)
    spread = float(window.context.std())
    futures = window.context[:, -1:] + spread * np.linspace(-2, 2, LEARNT_FROM)[:, None] + np.zeros((1, window.horizon))
    contexts = np.repeat(window.context, LEARNT_FROM, axis=0)
    _descend(model, contexts, futures.astype(np.float32), LEARNT_STEPS, LEARNT_RATE)
    values = model.forecast(window, levels=LEVELS, seeds=[0]).values[0]
    wrong = float((values[-1] < values[0]).mean())
    demand(
        wrong <= LEARNT_WRONG,
        f"{wrong:.0%} of quantiles {LEVELS[-1]} lie below those of {LEVELS[0]} after {LEARNT_STEPS} training steps, "
        f"and {crossed:.0%} lie below the one of a lower level before; are levels in another order?",
    )
    return f"{crossed:.0%} are out of order before training; the highest is above the lowest after {LEARNT_STEPS} steps"


def seeds_decide_a_forecast(subject: Subject) -> str:
    """A forecast is the same bit for bit under the same seeds, and leaves torch's own generator alone."""
    import torch

    model, windows, before = subject.forecaster, subject.windows(), torch.random.get_rng_state()
    first, again = (model.forecast(windows, seeds=[3, 1, 4, 1, 5], samples=4).values for _ in range(2))
    same_bits({"values": again}, {"values": first}, "forecasts under the same seeds")
    demand(
        torch.equal(torch.random.get_rng_state(), before), "torch's global generator moved; see checkpoint_folder.build"
    )
    if model.direct_quantiles:
        return "direct: no sample is drawn"
    other = model.forecast(windows, seeds=[9, 2, 6, 5, 3], samples=4).values
    demand(not np.array_equal(other, first), "other seeds draw the same samples")
    return "other seeds draw other samples"


def forecasts_do_not_depend_on_the_batch(subject: Subject) -> str:
    """One window at a time, with its own seed, is forecast as among the others, to rounding."""
    model, windows, seeds = subject.forecaster, subject.windows(), [3, 1, 4, 1, 5]
    together = model.forecast(windows, seeds=seeds, samples=4).values
    with in_batches(model, 1):
        singly = model.forecast(windows, seeds=seeds, samples=4).values
    alone = model.forecast(windows.take([0]), seeds=seeds[:1], samples=4).values
    worst = max(distance(singly, together), distance(alone, together[:1]))
    demand(worst <= ROUNDING, f"differ by {worst:.1e} of the largest, expected at most {ROUNDING:.0e}")
    return f"differ by {worst:.1e} of the largest value"


def it_runs_in_bfloat16(subject: Subject) -> str:
    """With the weights of its Linears in bfloat16 its states stay near those in float32, and it forecasts."""
    model = subject.copy()
    if not run_in(model.network, "bfloat16"):
        raise NotApplicable("the network has no Linear")
    worst = 0.0
    # Compared by norm: the output of an expert that is chosen otherwise may be far off.
    for key, states in states_of(model, subject.tokens).items():
        reference = subject.states[key].astype(np.float64)
        worst = max(worst, float(np.linalg.norm(states - reference)) / max(float(np.linalg.norm(reference)), 1e-30))
    demand(worst <= ROUNDED, f"states differ by {worst:.1e} of their norm, expected at most {ROUNDED:.0e}")
    demand(worst > 0, "no state differs: are the Linears used?")
    if isinstance(model, Forecaster):
        model.forecast(subject.windows(), seeds=[3, 1, 4, 1, 5], samples=4)
    return f"states differ by {worst:.1e} of their norm"


def claims_are_kept(subject: Subject) -> str:
    """Where scores are plain q·k, each block's query input is there; where the head is a softmax, its logits are."""
    model, tokens, results = subject.model, subject.tokens, []
    if model.plain_attention:
        layer_keys = [(layer.stack, layer.layer) for layer in model.attention_inputs(tokens)]
        demand(bool(layer_keys), "plain_attention is True, and the pass names no query projection")
        blocks = {(stack, layer) for stack, count in model.layers.items() for layer in range(1, count + 1)}
        are_unique = len(set(layer_keys)) == len(layer_keys)
        demand(are_unique and set(layer_keys) <= blocks, f"queries of {layer_keys}, blocks are {blocks}")
        results.append(f"{len(layer_keys)} query inputs")
    if model.softmax_head:
        widths = {logits.shape[-1] for logits in model.forecast_logits(tokens)}
        demand(len(widths) == 1, f"logits over {widths} ids, expected one number of them")
        values = model.id_values()
        demand(values is None or {len(values)} == widths, f"logits over {widths} ids, id_values returns {values}")
        results.append(f"logits over {widths.pop()} ids")
    if not results:
        raise NotApplicable("neither plain_attention nor softmax_head is claimed")
    return ", ".join(results)


def gradient_steps_lower_the_loss(subject: Subject) -> str:
    """The loss is a finite number of the batch, and steps of gradient descent lower it."""
    model, windows = subject.copy(), subject.windows(count=8)
    losses = _descend(model, windows.context, windows.future, STEPS, RATE)
    demand(losses[-1] < losses[0], f"loss {losses[0]:.4f} is {losses[-1]:.4f} after {STEPS} steps")
    return f"{losses[0]:.4f} to {losses[-1]:.4f} in {STEPS} steps"


def the_loss_depends_on_context_and_future(subject: Subject) -> str:
    """The loss changes when windows get each other's futures, and when they get each other's contexts."""
    import torch

    model, windows = subject.model, subject.windows(count=4)
    with torch.no_grad():
        before = _loss(model, windows.context, windows.future).item()
        futures = _loss(model, windows.context, windows.future[::-1].copy()).item()
        contexts = _loss(model, windows.context[::-1].copy(), windows.future).item()
    demand(futures != before, f"the loss is {before:.4f} whatever follows the contexts; is the future read?")
    demand(contexts != before, f"the loss is {before:.4f} whatever precedes the futures; is the context read?")
    return f"{before:.4f}; {futures:.4f} with other futures, {contexts:.4f} with other contexts"


def _descend(model: Family, context: np.ndarray, future: np.ndarray, steps: int, rate: float) -> list[float]:
    """Train on one batch; return the loss before each step."""
    import torch

    optimizer, losses = torch.optim.AdamW(model.network.parameters(), lr=rate), []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = _loss(model, context, future)
        demand(loss.ndim == 0 and bool(torch.isfinite(loss)), f"got a loss {loss}, expected one finite number")
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def _loss(model: Family, context: np.ndarray, future: np.ndarray) -> torch.Tensor:
    """Return the loss of a batch, with the same masks each time.

    NotApplicable for a family that does not train.
    """
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        try:
            return model.loss(torch.from_numpy(context), torch.from_numpy(future))
        except NotImplementedError as error:
            raise NotApplicable(f"the family does not train: {error}") from error


def forecasts_keep_the_unit_of_the_series(subject: Subject) -> str:
    """A context that is scaled or shifted has its forecast scaled or shifted alike, as `equivariant` declares."""
    model, windows = subject.forecaster, subject.windows()
    windows = replace(windows, context=np.round(windows.context * GRID) / GRID)
    strange = model.equivariant - set(CHANGES)
    demand(not strange, f"equivariant: got {sorted(strange)}, expected some of {sorted(CHANGES)}")
    before = _forecast(model, windows)
    for name in sorted(model.equivariant):
        factor, offset = CHANGES[name]
        actual = _forecast(model, replace(windows, context=windows.context * factor + offset))
        expected = before * factor + offset
        difference = np.abs(actual - expected).max(axis=(1, 2)) / np.abs(before * factor).max()
        # A value at the edge of a bin may get another token, so one window may differ.
        demand(
            float(np.median(difference)) <= UNIT_TOLERANCE,
            f"a context times {factor:g} plus {offset:g} has another forecast than the old one times {factor:g} plus "
            f"{offset:g}: differ by {np.median(difference):.1e} of the largest. Is it scaled and shifted back? A "
            f"family whose forecast cannot follow leaves {name!r} out of `equivariant`",
        )
    grown = np.abs(_forecast(model, replace(windows, context=windows.context * LARGER))).max() / np.abs(before).max()
    demand(grown >= LARGER / 10, f"a context times {LARGER:g} has a forecast only {grown:.1e} times as large")
    return f"{', '.join(sorted(model.equivariant)) or 'neither scale nor shift is declared'}; grows {grown:.0f} times"


def forecasts_depend_on_the_context(subject: Subject) -> str:
    """Under one seed, windows with another context, or another last step alone, have other forecasts."""
    model, windows = subject.forecaster, subject.windows()
    values = _forecast(model, windows)
    same = [(a, b) for a in range(len(values)) for b in range(a) if np.array_equal(values[a], values[b])]
    demand(not same, f"windows {same} have equal forecasts under one seed; is the context read?")
    after = _forecast(model, with_other_last_step(windows))
    changed = int((np.abs(after - values).max(axis=(1, 2)) > 0).sum())
    demand(changed > len(windows) // 2, f"another last step changes {changed} of {len(windows)} forecasts")
    return f"{len(values)} windows differ, {changed} by their last step"


def every_block_changes_states_and_forecasts(subject: Subject) -> str:
    """Other weights of a block change its own states and the forecast, and no state before the block."""
    model = subject.perturbed_model
    windows, count = subject.windows(2), 0
    tokens = model.tokenize(windows)
    states = states_of(model, tokens)
    forecast = _forecast(model, windows) if isinstance(model, Forecaster) else None
    for (stack, layer), block in blocks_of(model, subject).items():
        if layer not in (1, model.layers[stack]) or not any(True for _ in block.parameters()):
            # First and last are enough: another check shows that states flow through all blocks.
            continue
        saved_weights = {name: part.detach().clone() for name, part in block.state_dict().items()}
        add_noise(block, REWRITTEN, seed=layer)
        other = states_of(model, tokens)
        changed = [key for key, before in states.items() if distance(other[key], before) > ROUNDING]
        after = _forecast(model, windows) if isinstance(model, Forecaster) else None
        block.load_state_dict(saved_weights)
        change = f"other weights in {stack} block {layer}"
        demand((stack, layer, False) in changed, f"{change} do not change its states")
        early = [key for key in changed if key[0] == stack and key[1] < layer]
        demand(not early, f"{change} change the states {early}, which come before it")
        if forecast is not None and after is not None:
            demand(bool((np.abs(after - forecast) > 0).any()), f"{change} do not change the forecast")
        count += 1
    if not count:
        raise NotApplicable("no block has parameters")
    return f"{count} blocks, the first and the last of each stack"


def _forecast(model: Family, windows: Windows) -> np.ndarray:
    """Return the forecast of every window under the same seed, in float64."""
    assert isinstance(model, Forecaster)
    return model.forecast(windows, seeds=[FORECAST_SEED] * len(windows), samples=SAMPLES).values.astype(np.float64)
