"""Healing of a compressed model: a short distillation to the outputs of its dense original."""

from __future__ import annotations

import contextlib
import copy
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tsfmscope.compression.bits import store_vectors_in_halves
from tsfmscope.compression.calibration import calibration_windows
from tsfmscope.compression.options import Calibration, Method
from tsfmscope.compression.outputs import Parts, has_outputs, loss_batches, outputs
from tsfmscope.errors import HealthError, ModelError
from tsfmscope.models.common.attention import NAMES
from tsfmscope.models.common.low_bits import Packed, find_grid, is_roundable
from tsfmscope.training.corpora import BatchShape, PriorsCorpus
from tsfmscope.training.pretraining import Average, rate

if TYPE_CHECKING:
    import pyarrow as pa
    import torch

    from tsfmscope.models.base import Family
    from tsfmscope.series.types import Windows

STEPS = 300
LEARNING_RATE = 1e-3
# Random series per step, and those that validate.
BATCH, VALIDATION = 32, 64
# Shares of the sources of random series. Those of `weekdays` have patterns of days and weeks, as hourly data have.
MIXTURE = {"priors": 0.4, "periodic": 0.3, "weekdays": 0.3}
# Smallest number of context steps of a random series, before gaps.
MIN_PAST = 32
# Number of times that the validation error is measured, after step 0.
CHECKS = 6
# Decay of the moving average of the weights, and share of the steps in which the learning rate rises.
DECAY, WARM_UP = 0.98, 0.05
# Added to the seed, so that no series of a training with a small seed is drawn again.
SEED_OFFSET = 611_953

# Arguments: steps done, steps of all.
Watch = Callable[[int, int], None]


class Check(NamedTuple):
    """Validation error after a step; step 0 is the model before healing."""

    step: int
    error: float


def healer(
    model: Family,
    method: Method,
    tables: Mapping[str, pa.Table],
    calibration: Calibration | None,
    watch: Watch | None = None,
) -> Callable[[Family], list[Check]] | None:
    """Return a function that heals a compressed model towards the model as it is now; None without method.heal.

    tables, calibration: as `calibration_windows` takes them. The windows validate. The calibration's seed is that of
    the healing. ModelError as in `heal`, and DataError as in `calibration_windows`, both before any compression.
    """
    if not method.heal:
        return None
    assert calibration is not None, "a method with `heal` reads data"
    check_healable(model)
    windows, teacher = calibration_windows(model, tables, calibration), copy.deepcopy(model)
    return partial(heal, teacher=teacher, windows=windows, steps=method.heal, seed=calibration.seed, watch=watch)


def heal(
    model: Family,
    teacher: Family,
    windows: Sequence[Windows],
    *,
    steps: int = STEPS,
    learning_rate: float = LEARNING_RATE,
    seed: int = 0,
    watch: Watch | None = None,
) -> list[Check]:
    """Train a compressed model to the outputs of its dense original, in place; return the validation errors.

    The outputs are those of `Family.output_modules` in the forward pass of the family's loss. The distance is the
    Kullback-Leibler divergence of logits (`softmax_head`), else the mean absolute error of scaled outputs or
    parameters of a distribution. Dropout is off. Only the weights of attention layers are trained;
    factors keep their ranks. Of a model whose matrices are rounded, only the scales of the
    groups and the vectors are trained, and the numbers stay. The training series are random (`PriorsCorpus`), with
    contexts as long as the windows'. The weights with the least validation error remain, among averages after CHECKS
    steps and the weights before healing. That error is a geometric mean: of the mean distance on random series that are
    not trained on, and, with the same weight, of those on the windows, data set by data set. The windows alone would
    favour the weights before healing, since a compression that reads data has been fitted to them.

    Args:
        model: the compressed model.
        teacher: the dense model; it is not changed.
        windows: calibration windows of one context and horizon, one item per data set. They are not trained on.
        steps: number of optimizer steps, at least 1.
        learning_rate: largest learning rate of AdamW.
        seed: seed of series and batches; the same seed gives the same weights.
        watch: called with the number of steps done and of all steps.

    Raises:
        ModelError: the family has no `output_modules` or reads no series.
        HealthError: the distance is not finite. The model then has its weights from before.
    """
    check_healable(model)
    teacher.network.eval()
    draw, distance = _Batches(teacher, windows, seed), _Distance(model, teacher)
    # Training begins with step 1.
    held_out = [[draw(0, VALIDATION)], *(list(loss_batches(teacher, [part], model.batch)) for part in windows)]
    network, every = model.network.eval(), max(1, -(-steps // CHECKS))
    checks = [Check(0, _finite(distance.mean(held_out, seed), 0, learning_rate))]
    with _trained(model) as parameters:
        average = Average(network, DECAY)
        best = original = copy.deepcopy(network.state_dict())
        try:
            for step in _train(parameters, lambda step: distance(draw(step), seed + step), steps, learning_rate):
                average.update(step)
                if step % every == 0 or step == steps:
                    average.swap()
                    checks.append(Check(step, distance.mean(held_out, seed)))
                    # False for NaN.
                    if checks[-1].error < min(check.error for check in checks[:-1]):
                        best = copy.deepcopy(network.state_dict())
                    average.swap()
                if watch:
                    watch(step, steps)
        except BaseException:
            best = original
            raise
        finally:
            network.load_state_dict(best)
    return checks


@contextlib.contextmanager
def _trained(model: Family) -> Iterator[list[torch.nn.Parameter]]:
    """Yield the parameters that are trained; all others are fixed while the context is open."""
    is_rounded = "bytes" in (model.compression or {}).get("ranks", {})
    with _split(model.network) if is_rounded else contextlib.nullcontext(_matrices(model)) as parameters:
        trained = set(parameters)
        fixed = [weight for weight in model.network.parameters() if weight.requires_grad and weight not in trained]
        for parameter in fixed:
            parameter.requires_grad_(False)
        try:
            yield parameters
        finally:
            for parameter in fixed:
                parameter.requires_grad_(True)


def _matrices(model: Family) -> list[torch.nn.Parameter]:
    """Return the weights and biases of attention."""
    linears = [layer.linear(name) for layer in model.attentions() for name in NAMES]
    return list(dict.fromkeys(parameter for linear in linears for parameter in linear.parameters()))


@contextlib.contextmanager
def _split(network: torch.nn.Module) -> Iterator[list[torch.nn.Parameter]]:
    """Yield the vectors of a rounded network, and the changes of the scales of its Linears.

    While the context is open, a matrix is the product of its numbers and scales; afterwards it is on the grid of its
    bits again. A matrix that is shared, such as with an embedding, stays as it is.
    """
    import torch
    from torch.nn.utils import parametrize

    uses = Counter(id(weight) for _, weight in network.named_parameters(remove_duplicate=False))
    linears = [module for module in network.modules() if isinstance(module, torch.nn.Linear)]
    vectors = [weight for weight in network.parameters() if not is_roundable(weight) and weight.requires_grad]
    rounded = []
    for linear in linears:
        if not is_roundable(linear.weight) or uses[id(linear.weight)] > 1:
            continue
        if (packed := find_grid(linear.weight.detach().cpu().numpy())) is not None:
            parametrize.register_parametrization(linear, "weight", _scaled(packed, linear.weight.device))
            rounded.append(linear)
    try:
        yield vectors + [linear.get_parameter("parametrizations.weight.original") for linear in rounded]
    finally:
        for linear in rounded:
            parametrize.remove_parametrizations(linear, "weight")
        store_vectors_in_halves(network)


def _scaled(packed: Packed, device: torch.device) -> torch.nn.Module:
    """Return a module that gives the weight from the relative changes of its scales, which are bfloat16 numbers."""
    import torch

    scales = torch.from_numpy(packed.scales.copy())[:, :, None].to(device)
    rows, groups, _ = scales.shape
    numbers = torch.from_numpy(packed.numbers.reshape(rows, groups, -1).astype(np.float32)).to(device)

    class Scaled(torch.nn.Module):
        def forward(self, changes: torch.Tensor) -> torch.Tensor:
            exact = scales * (1 + changes)
            # The gradient of rounding counts as 1.
            nearest = exact + (exact.bfloat16().float() - exact).detach()
            return (numbers * nearest).reshape(rows, -1)

        def right_inverse(self, weight: torch.Tensor) -> torch.Tensor:
            return torch.zeros_like(scales)

    return Scaled()


def _train(
    parameters: list[torch.nn.Parameter], loss_of: Callable[[int], torch.Tensor], steps: int, learning_rate: float
) -> Iterator[int]:
    """Yield each step after its optimizer step; HealthError before a step with a loss that is not finite."""
    import torch

    optimizer = torch.optim.AdamW(parameters, lr=learning_rate, betas=(0.9, 0.98), weight_decay=0.0)
    warm_up = max(1.0, WARM_UP * steps)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate(step, steps, warm_up, "cosine"))
    for step in range(1, steps + 1):
        loss = loss_of(step)
        _finite(float(loss.detach()), step, learning_rate)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        schedule.step()
        yield step


def _finite(distance: float, step: int, learning_rate: float) -> float:
    """Return the distance; HealthError if it is not finite."""
    if not math.isfinite(distance):
        raise HealthError(
            f"healing: the distance to the dense model is {distance} at step {step}, expected a finite number; the "
            f"model is as before healing. Lower the learning rate {learning_rate:g}, or compress without healing"
        )
    return distance


@dataclass(frozen=True)
class _Distance:
    """Distance of a model's outputs from those of its teacher, both in evaluation mode."""

    model: Family
    teacher: Family

    def __call__(self, parts: Parts, seed: int) -> torch.Tensor:
        """Return the mean distance over a batch, with gradients to the model.

        seed: of torch, since the loss of some families draws layouts or patch sizes; both models get the same.
        """
        import torch
        from torch.nn.functional import kl_div, l1_loss, log_softmax

        with torch.no_grad():
            expected = outputs(self.teacher, parts, seed)
        answers = outputs(self.model, parts, seed)
        pairs = zip(answers, expected, strict=True)
        if not self.model.softmax_head:
            return torch.stack([l1_loss(*pair) for pair in pairs]).mean()
        logs = ([log_softmax(logits, -1) for logits in pair] for pair in pairs)
        terms = (kl_div(answer, wanted, reduction="none", log_target=True) for answer, wanted in logs)
        return torch.stack([term.sum(-1).mean() for term in terms]).mean()

    def mean(self, datasets: Sequence[Sequence[Parts]], seed: int) -> float:
        """Return the geometric mean of the mean distances of data sets; the first one has half of the weight."""
        import torch

        means = []
        with torch.no_grad():
            for batches in datasets:
                distances = [float(self(parts, seed)) for parts in batches]
                means.append(np.average(distances, weights=[len(parts[0]) for parts in batches]))
        # A distance of 0 has the logarithm -inf, and the geometric mean is 0.
        with np.errstate(divide="ignore"):
            return float(np.exp((np.log(means[0]) + np.mean(np.log(means[1:]))) / 2))


class _Batches:
    """Training batches, each drawn from the seed and the number of its step."""

    def __init__(self, model: Family, windows: Sequence[Windows], seed: int) -> None:
        self._dated = model.dated
        context, horizon = windows[0].context.shape[1], model.loss_horizon or windows[0].horizon
        self._shape = BatchShape(context + horizon, [context], [horizon], horizon, min(MIN_PAST, context // 2))
        self._corpus = PriorsCorpus(MIXTURE, (), seed + SEED_OFFSET)

    def __call__(self, step: int, count: int = BATCH) -> Parts:
        """Draw `count` random series, those of a step."""
        import torch

        batch = self._corpus.batch(step, self._shape._replace(steps=count * self._shape.steps))
        return tuple(map(torch.from_numpy, batch.parts(dated=self._dated)))


def check_healable(model: Family) -> None:
    """Raise ModelError for a family that cannot be healed."""
    if not has_outputs(model):
        raise ModelError(
            f"{model.name}: cannot be healed; expected a family that reads series and names `output_modules`, found "
            f"modality {model.modality} and output_modules {model.output_modules}; compress without healing"
        )
