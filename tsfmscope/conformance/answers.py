"""Checks of what a model returns besides states: forecasts, matrices, attention layers, logits, a loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tsfmscope.conformance.errors import NotApplicable
from tsfmscope.conformance.subject import Subject, same_bits, states_of
from tsfmscope.conformance.verdict import SAME, demand, distance
from tsfmscope.models.base import Family, Forecaster
from tsfmscope.models.common.capture import in_batches
from tsfmscope.models.common.head_matrices import head_counts
from tsfmscope.models.common.layers import run_in

if TYPE_CHECKING:
    import torch

# Names as in WeightMatrix; those of experts have a suffix, as in mlp_in.3.
ATTENTION_NAMES = ("q", "k", "v", "o")
MATRIX_NAMES = (*ATTENTION_NAMES, "mlp_in", "mlp_gate", "mlp_out", "ssm_in", "ssm_out")
# Number of gradient steps, and learning rate, that must lower the loss of one batch.
STEPS, RATE = 10, 1e-3
LEVELS = (0.1, 0.4, 0.5, 0.9)
# Share of a layer's norm that rounding to eight bits in every block may change; 0.015 is the most
# of our families.
ROUNDED = 0.05
# Steps and learning rate of a training that orders the quantiles of an untrained head.
LEARNT_STEPS, LEARNT_RATE = 40, 1e-2
# Number of futures of one context, and share of quantiles that may still be out of order.
LEARNT_FROM, LEARNT_WRONG = 8, 0.25
# Share of quantiles below the one of a lower level that a trained quantile head may have.
CROSSED = 0.01


def quantiles_are_in_order(subject: Subject) -> str:
    """Quantiles of a forecast rise with their level; those of an untrained head do after a short training."""
    model, windows = subject.forecaster, subject.windows()
    forecast = model.forecast(windows, levels=LEVELS, seeds=list(range(len(windows))))
    crossed = float((np.diff(forecast.values, axis=1) < 0).mean())
    if crossed > CROSSED and model.direct_quantiles and subject.config is not None:
        return _quantiles_are_learnt(subject, crossed)
    demand(
        crossed <= CROSSED * model.direct_quantiles, f"{crossed:.0%} of quantiles lie below the one of a lower level"
    )
    return f"levels {LEVELS}, {windows.horizon} steps"


def _quantiles_are_learnt(subject: Subject, crossed: float) -> str:
    """Train an untrained head on futures that differ, and return what was seen.

    Failed where more than LEARNT_WRONG of the highest quantiles are below the lowest.
    """
    model, window = subject.copy(), subject.windows(1)
    assert isinstance(model, Forecaster)
    spread = float(window.context.std())
    futures = window.context[:, -1:] + spread * np.linspace(-2, 2, LEARNT_FROM)[:, None] + np.zeros((1, window.horizon))
    _descend(
        model, np.repeat(window.context, LEARNT_FROM, axis=0), futures.astype(np.float32), LEARNT_STEPS, LEARNT_RATE
    )
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
    demand(worst <= SAME, f"differ by {worst:.1e} of the largest, expected at most {SAME:.0e}")
    return f"differ by {worst:.1e} of the largest value"


def matrices_are_named_once(subject: Subject) -> str:
    """`weights` names each matrix of every block once, finite, with heads that divide it."""
    model, sizes = subject.model, {}
    for named_matrix in model.weights():
        key = (named_matrix.stack, named_matrix.layer, named_matrix.name, named_matrix.attention)
        location = f"{named_matrix.stack} block {named_matrix.layer} {named_matrix.name}"
        demand(key not in sizes, f"{location} ({named_matrix.attention}) comes twice")
        # A stack whose states are not read may have matrices.
        last = model.layers.get(named_matrix.stack, named_matrix.layer)
        demand(1 <= named_matrix.layer <= last, f"{location}: blocks count from 1 to {last}")
        demand(
            named_matrix.name.partition(".")[0] in MATRIX_NAMES,
            f"{location}: got {named_matrix.name!r}, expected one of {MATRIX_NAMES}",
        )
        demand(
            named_matrix.matrix.ndim == 2 and bool(np.isfinite(named_matrix.matrix).all()),
            f"{location}: no finite matrix [out, in]",
        )
        demand(
            (named_matrix.attention is not None) == (named_matrix.name in ATTENTION_NAMES),
            f"{location}: attention is {named_matrix.attention!r}",
        )
        sizes[key] = named_matrix.matrix.size
    if not sizes:
        raise NotApplicable("`weights` names no matrix")
    for stack, blocks in model.layers.items():
        missing_blocks = set(range(1, blocks + 1)) - {layer for name, layer, *_ in sizes if name == stack}
        demand(not missing_blocks, f"{stack}: blocks {sorted(missing_blocks)} have no matrix")
    # Raises ValueError where heads do not divide q, k, v or o.
    head_counts(model)
    n_parameters = sum(part.numel() for part in model.network.parameters())
    demand(
        sum(sizes.values()) <= n_parameters, f"matrices hold {sum(sizes.values())} numbers, the network {n_parameters}"
    )
    return f"{len(sizes)} matrices, {sum(sizes.values()) / n_parameters:.0%} of the parameters"


def attention_is_written_as_it_was_read(subject: Subject) -> str:
    """Every attention layer that can be compressed, read and written back, leaves the states as they were."""
    model = subject.copy()
    layers = list(model.attentions())
    if not layers:
        raise NotApplicable("`attentions` names no layer: the family is not compressed")
    names = [layer.name for layer in layers]
    demand(len(set(names)) == len(names), f"layers {names} are not named once each")
    queries = {
        (named_matrix.stack, named_matrix.layer, named_matrix.attention): named_matrix.matrix
        for named_matrix in model.weights()
        if named_matrix.name == "q"
    }
    for layer in layers:
        key = (layer.stack, layer.layer, layer.kind)
        demand(key in queries, f"{layer.name}: `weights` has no q of it")
        demand(queries[key].shape == layer.linear("q").weight.shape, f"{layer.name}: q is not that of `weights`")
        layer.write(layer.read())
    worst = max(distance(states, subject.states[key]) for key, states in states_of(model, subject.tokens).items())
    demand(worst <= SAME, f"states differ by {worst:.1e} of the largest after nothing was changed")
    return f"{len(layers)} layers"


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
        demand(
            set(layer_keys) <= blocks and len(set(layer_keys)) == len(layer_keys),
            f"queries of {layer_keys}, blocks are {blocks}",
        )
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
