"""Comparison of linear probes on a checkpoint's states with the per-layer numbers that another group published.

Aionoscope (Chemeris, Jin and Balestriero 2026, arXiv 2607.00956) trains linear probes on mean-pooled states of every
layer of released checkpoints. Sources, read and written anew, because neither repository has a licence and neither
package is on the package index:

- langotime/aionoscope-benchmarks, commit e3bdc7055ef5a0baa1a48e35a3d18e57f0b6ccb8: series and targets
  (runtime_dataset.py, configs/dataset_aiono_basic_components_balanced.yaml), probes (offline_probe.py,
  probe_metrics.py, schedules.py, configs/probe.yaml), states (adapters), and the published numbers
  (results/models-v2/*__num_enabled_1.json);
- langotime/aionoscope, commit 9d879a4863207f540894deb2c4ab5bd715f885ed: the components of the series (aiono/views,
  aiono/processes/nodes.py) and the range of frequencies (aiono/benchmarks/aiono_basic_components.py).

Series: at 500 Hz, each one component, which is drawn uniformly from 14. Every factor of a component is drawn
uniformly from its range. The time of an event is a whole step. Frequencies reach from one period per series to 0.9 of
Nyquist (sine), 5 steps per period (sawtooth) and 2 steps in the shorter plateau (square).

Classification probe: one linear layer to 14 classes, binary cross-entropy; unscaled states; 1,250 steps of AdamW
without decay; learning rate 0.01 (their schedule is constant, and their factor for wide states is 1 up to width 1024);
batches of 1,024 without replacement within an epoch; gradients clipped to a norm of 1. Every 50 steps the probe is
evaluated on the validation series. Reported is the best AUC, the mean over classes. Published is the median over 10
validation sets.

published_probes.csv: results.categorical[…].best_auc.macro_auc of the checkpoints that the families here load, with
the steps of the context and of the horizon that their adapters read. Their state n is our layer n, and ′ marks states
after the final norm. For TTM, layers 0, 2, 4, 5 and 6 are their states 0, 4, 9, 12 and 13; their other states repeat
these or have rows of a part of a patch. Left out is layer 0 of MOMENT and Moirai 1, an affine map of scaled steps:
its AUC, at chance level, depends on rounding.

Deviations: 16,384 training series up to width 256 (published: 65,536), one validation set of 16,384, states in float32
(published: bfloat16), other random numbers.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tsfmscope import hub, progress
from tsfmscope.conformance.checkpoints import Checkpoint
from tsfmscope.conformance.subject import NotApplicable, demand
from tsfmscope.layer_states import pool_states
from tsfmscope.models import registry
from tsfmscope.models.types import TokenKind
from tsfmscope.series.types import Windows

if TYPE_CHECKING:
    import torch

    from tsfmscope.models.base import Family

TABLE = Path(__file__).with_suffix(".csv")
# Largest difference of an AUC; those of TTM R2 differ by up to 0.0032 (tests/…/functions/test_published_probes.py).
CLOSE = 0.005
# Number of validation series, and of training series up to this width; wider states take the published 65,536, since
# a quarter of them costs 0.003 to 0.04 of AUC at width 1024 (measured on random features).
SERIES, NARROW = 16_384, 256
# Number of series that are tokenised together.
CHUNK = 128
# Longest time of the states of a part, in seconds: our choice.
LONGEST = 900
# Steps per second.
RATE = 500
EVENT, OFFSET = (0.15, 0.85), (-0.5, 0.5)
WAVE = {"amplitude": (0.2, 1.2), "phase": (0.0, 2 * np.pi), "offset": (-0.2, 0.2)}
# Component -> factor -> range. Times are shares of the series; frequencies begin at one period per series.
COMPONENTS: dict[str, dict[str, tuple[float, float]]] = {
    "constant": {"offset": (-1.0, 1.0)},
    "gaussian_noise": {"amplitude": (0.02, 0.15)},
    "uniform_noise": {"amplitude": (0.05, 0.25)},
    "random_walk": {"amplitude": (0.01, 0.08)},
    "linear_trend": {"amplitude": (-2.0, 2.0), "offset": OFFSET},
    "quadratic_trend": {"a": (-4.0, 4.0), "b": (-2.0, 2.0), "offset": OFFSET},
    "log_trend": {"amplitude": (-2.0, 2.0), "offset": OFFSET},
    "sigmoid_trend": {"amplitude": (-2.0, 2.0), "center": (0.2, 0.8), "sharpness": (5.0, 20.0), "offset": OFFSET},
    "sine": {**WAVE, "frequency": (0.0, 0.9 * RATE / 2)},
    "sawtooth": {**WAVE, "frequency": (0.0, RATE / 5)},
    "square": {**WAVE, "frequency": (0.0, RATE * 0.1 / 2), "duty": (0.1, 0.9)},
    "spike": {"time": EVENT, "amplitude": (0.8, 1.2)},
    "level_change": {"time": EVENT, "amplitude": (-1.0, 1.0)},
    "gaussian": {"time": EVENT, "amplitude": (-1.0, 1.0), "sigma": (0.01, 0.06)},
}
# Component -> series of amplitude 1 and offset 0 on a grid: step [C], share of the series [C], size (n, C), generator.
SHAPES: dict[str, Callable[..., np.ndarray]] = {
    "constant": lambda grid: 0 * grid.share,
    "gaussian_noise": lambda grid: grid.rng.normal(size=grid.size),
    "uniform_noise": lambda grid: grid.rng.uniform(-1, 1, grid.size),
    "random_walk": lambda grid: np.cumsum(grid.rng.normal(size=grid.size) * (grid.step > 0), axis=1),
    "linear_trend": lambda grid: grid.share - 0.5,
    "quadratic_trend": lambda grid, a, b: a * (grid.share - 0.5) ** 2 + b * (grid.share - 0.5),
    "log_trend": lambda grid: np.log(1e-3 + grid.share),
    "sigmoid_trend": lambda grid, center, sharpness: 1 / (1 + np.exp(-sharpness * (grid.share - center))),
    "sine": lambda grid, frequency, phase: np.sin(2 * np.pi * frequency * grid.step / RATE + phase),
    "sawtooth": lambda grid, frequency, phase: 2 * ((frequency * grid.step / RATE + phase / (2 * np.pi)) % 1) - 1,
    "square": lambda grid, frequency, phase, duty: np.where(
        (frequency * grid.step / RATE + phase / (2 * np.pi)) % 1 < duty, 1.0, -1.0
    ),
    "spike": lambda grid, time: grid.step == time,
    "level_change": lambda grid, time: grid.step >= time,
    "gaussian": lambda grid, time, sigma: np.exp(-0.5 * ((grid.step - time) / (sigma * RATE)) ** 2),
}


class Data(NamedTuple):
    """Series [N, C], whether each has a component [N, 14], and the factors [n] of the series of each component."""

    values: np.ndarray
    classes: np.ndarray
    factors: dict[str, dict[str, np.ndarray]]


def read_published(name: str) -> list[dict[str, str]]:
    """Return the rows of the table for a released checkpoint ORG/NAME."""
    rows = csv.DictReader(TABLE.read_text("utf-8").splitlines())
    return [row for row in rows if row["checkpoint"] == name]


def states_have_the_published_probes(checkpoint: Checkpoint) -> str:
    """Linear probes on the states of every layer have the AUC that Aionoscope published, to 0.005."""
    import torch

    prefix, _, name = checkpoint.reference.partition("@")[0].rpartition(":")
    published = read_published(name) if f"{prefix}:" == hub.PREFIX else []
    if not published:
        raise NotApplicable("no probes of this checkpoint are published")
    model = checkpoint.subject.model
    if torch.cuda.is_available():
        options = registry.stored_options(checkpoint.options)
        model = registry.load(checkpoint.family, checkpoint.folder, device="cuda", options=options)
    return compare_with_published(model, published)


def compare_with_published(model: Family, published: list[dict[str, str]], count: int = SERIES) -> str:
    """Return the largest difference of an AUC. Raises Failed where one is too large, NotApplicable if it takes long.

    published: rows of the table. count: number of validation series.
    """
    context, horizon = (int(published[0][name]) for name in ("context", "horizon"))
    data = draw_data(count if model.width <= NARROW else 4 * count, 0, context)
    held_data = draw_data(count, 100, context)
    states, held_states = (pool_series(model, part.values, horizon) for part in (data, held_data))
    worst, far = 0.0, []
    for layer, expected in ((row["layer"], float(row["auc"])) for row in published):
        found = probe_auc(states[layer], held_states[layer], data, held_data)
        worst = max(worst, abs(found - expected))
        if abs(found - expected) > CLOSE:
            far.append(f"layer {layer}: expected {expected:.4f}, found {found:.4f}")
    demand(not far, f"AUC of probes: {'; '.join(far)}; open an issue with the output of this command")
    return f"{len(published)} layers differ by at most {worst:.4f} of AUC"


def draw_data(count: int, seed: int, steps: int) -> Data:
    """Draw series of one component each, with their classes and factors."""
    rng, step = np.random.default_rng(seed), np.arange(steps)
    kinds, values = rng.integers(len(COMPONENTS), size=count), np.empty((count, steps), np.float32)
    factors: dict[str, dict[str, np.ndarray]] = {}
    for index, (kind, ranges) in enumerate(COMPONENTS.items()):
        rows = np.flatnonzero(kinds == index)
        low = {"frequency": RATE / (steps - 1)}
        drawn: dict[str, Any] = {
            name: rng.uniform(low.get(name, first), last, (len(rows), 1)) for name, (first, last) in ranges.items()
        }
        if "time" in ranges:
            drawn["time"] = rng.integers(int(EVENT[0] * steps), int(EVENT[1] * steps) + 1, (len(rows), 1))
        factors[kind] = {name: column[:, 0] for name, column in drawn.items()}
        amplitude, offset = drawn.pop("amplitude", 1.0), drawn.pop("offset", 0.0)
        grid = SimpleNamespace(step=step, share=step / (steps - 1), size=(len(rows), steps), rng=rng)
        values[rows] = amplitude * SHAPES[kind](grid, **drawn) + offset
    return Data(values, np.eye(len(COMPONENTS), dtype=np.float32)[kinds], factors)


def pool_series(model: Family, values: np.ndarray, horizon: int) -> dict[str, np.ndarray]:
    """Return the states [N, d] of every layer (′: normed), the mean over the tokens of each context.

    Raises NotApplicable where this takes longer than LONGEST.
    """
    (stack,), begin = model.stacks, time.monotonic()
    pooled: dict[str, list[np.ndarray]] = {}
    for start in range(0, len(values), CHUNK):
        context = values[start : start + CHUNK]
        names, origin = [str(row) for row in range(len(context))], np.full(len(context), values.shape[1])
        # Of the frequencies, months give Moirai patches of 8 steps, as in their adapter; no other family reads it.
        windows = Windows(context, np.full((len(context), horizon), np.nan), names, origin, "components", "ME", 1)
        tokens = model.tokenize(windows)
        kinds = tokens.kinds[stack]
        # Their mean is over all attended tokens of the context, also over the REG token of Chronos-2.
        kinds[kinds == TokenKind.REG] = TokenKind.OBSERVATION
        for layer in pool_states(model, tokens, stack, "mean"):
            pooled.setdefault(f"{layer.layer}{'′' * layer.normed}", []).append(layer.vectors)
        progress.show("states of series with known components", start + len(context), len(values))
        seconds = (time.monotonic() - begin) / (start + len(context)) * len(values)
        if seconds > LONGEST:
            raise NotApplicable(f"states of {len(values):,} series take {seconds / 60:.0f} minutes here; use a GPU")
    return {layer: np.concatenate(vectors) for layer, vectors in pooled.items()}


def train_probe(
    states: np.ndarray, held_states: np.ndarray, outputs: int, loss: Callable[..., torch.Tensor],
    norm: Callable[..., torch.Tensor],
) -> Iterator[np.ndarray]:  # fmt: skip
    """Train a linear layer on states and yield its answers to the held-out states every 50 steps.

    loss: loss of the answers to a batch, given its rows. norm: norm that is clipped to 1, one or one per output, of
    the gradient of weights and bias [outputs, d + 1].
    """
    import torch

    ones = ((0, 0), (0, 1))
    inputs, held_inputs = (torch.from_numpy(np.pad(part, ones, constant_values=1.0)) for part in (states, held_states))
    generator = torch.Generator().manual_seed(0)
    # As torch.nn.Linear begins.
    weights = (2 * torch.rand(outputs, inputs.shape[1], generator=generator) - 1) / states.shape[1] ** 0.5
    optimizer = torch.optim.AdamW([weights.requires_grad_()], lr=0.01, weight_decay=0.0)
    per_epoch = len(inputs) // 1024
    for step in range(1250):
        if step % per_epoch == 0:
            order = torch.randperm(len(inputs), generator=generator)
        rows = order[1024 * (step % per_epoch) :][:1024]
        (gradient,) = torch.autograd.grad(loss(inputs[rows] @ weights.T, rows), [weights])
        weights.grad = gradient / norm(gradient).clamp_min(1).reshape(-1, 1)
        optimizer.step()
        if (step + 1) % 50 == 0:
            yield (held_inputs @ weights.detach().T).numpy()


def probe_auc(states: np.ndarray, held_states: np.ndarray, data: Data, held_data: Data) -> float:
    """Return the best AUC of the classification probe."""
    import torch
    from sklearn.metrics import roc_auc_score
    from torch.nn.functional import binary_cross_entropy_with_logits

    classes = torch.from_numpy(data.classes)

    def loss(answers: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return binary_cross_entropy_with_logits(answers, classes[rows])

    trained = train_probe(states, held_states, len(COMPONENTS), loss, torch.Tensor.norm)
    return max(float(roc_auc_score(held_data.classes, answers)) for answers in trained)
