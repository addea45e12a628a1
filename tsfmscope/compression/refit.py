"""Least squares of outputs: those of a truncated model fitted to its base's, and neurons of MLPs removed.

The order of removal, and the weights that make up for removed neurons, minimise the error of the MLP's output.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int

from tsfmscope.compression.calibration import align_mask
from tsfmscope.models.common.capture import capture
from tsfmscope.models.common.compression_block import Mlp
from tsfmscope.models.common.layers import LowRank
from tsfmscope.models.types import TokenKind
from tsfmscope.ranks.tall import TallQR

if TYPE_CHECKING:
    from tsfmscope.models.base import Family
    from tsfmscope.models.common.attention import AttentionLayer
    from tsfmscope.models.types import Tokens

# Penalty on the change of a matrix, relative to the mean square of its inputs. Calibrated on 256 synthetic series,
# the WQL ratio of `chronos-bolt-350k` at a quarter is 1.063 with 0.1, 1.044 with 0.01, 1.036 with 0.001.
RIDGE = 0.01

# Names of MLP matrices in `Family.weights`: those whose rows are neurons, and the one whose columns are.
INPUTS, OUTPUT = ("mlp_in", "mlp_gate"), "mlp_out"
# Up to this number, neurons are removed one by one; of n more than that, n // GROUPS are removed at a time.
SINGLE, GROUPS = 512, 32


def fit_outputs(
    base: Family, model: Family, parts: Sequence[Tokens], *, ridge: float = RIDGE, mlps: Sequence[Mlp] = ()
) -> None:
    """Fit the output projection of every attention layer of a truncated model, in place, and the outputs of some MLPs.

    Equation: minimise Σ ‖y − (W + D) h‖² + λ ‖D‖² over D, where y is the output of the base's layer, h the input of
    the truncated model's output projection W for the same token, and λ = ridge times the mean of Σ h² over the
    entries of h. A bias is fitted too, without penalty. Of two thin factors only the second is fitted, so the
    number of parameters stays the same.
    Source: ridge regression; SVD-LLM (ICLR 2025) updates its factors by least squares in the same way. Deviation: all
    layers are fitted to one pass of the truncated model, so the inputs of later layers are those before the fit.
    Degenerate input: directions of h without data stay as they are. A layer of a stack without tokens is left out.

    base: the model before truncation. parts: calibration windows, as `calibration.gather` takes them. mlps: MLPs that
    read every token, at the same paths in both networks.
    """
    fits = [
        _Fit(_attention_output(base_layer), _attention_output(layer))
        for base_layer, layer in zip(base.attentions(), model.attentions(), strict=True)
        if layer.stack in model.stacks
    ]
    fits += [_Fit(mlp_output(mlp, base.network), mlp_output(mlp, model.network)) for mlp in mlps]
    for tokens in parts:
        for start in range(0, len(tokens), model.batch):
            batch = tokens.take(np.arange(start, min(start + model.batch, len(tokens))))
            targets = read_inputs(base, [fit.base for fit in fits], batch)
            inputs = read_inputs(model, [fit.output for fit in fits], batch)
            for fit in fits:
                fit.add(inputs[fit.output.name], targets[fit.output.name])
    for fit in fits:
        fit.apply(ridge)


class Output(NamedTuple):
    """Last Linear of an attention layer or of an MLP.

    align(shape, valid): the mask of rows that count among inputs of this shape, from the mask of tokens of `stack`.
    """

    name: str
    stack: str
    linear: Any
    align: Callable[[tuple[int, ...], np.ndarray], np.ndarray]


def _attention_output(layer: AttentionLayer) -> Output:
    return Output(layer.name, layer.stack, layer.linear("o"), partial(align_mask, layer))


def mlp_output(mlp: Mlp, network: Any) -> Output:
    """Return the output Linear of an MLP.

    All rows of an expert count, since it is not known which tokens they are.
    """

    def align(shape: tuple[int, ...], valid: np.ndarray) -> np.ndarray:
        return valid.reshape(shape) if valid.size == math.prod(shape) else np.ones(shape, dtype=bool)

    return Output(mlp.name, mlp.stack, network.get_submodule(mlp.output), align)


class _Fit:
    """Least-squares problem of one output, gathered batch by batch."""

    def __init__(self, base: Output, output: Output) -> None:
        # Of two thin factors, the second gives the output.
        self.linear = output.linear.wide if isinstance(output.linear, LowRank) else output.linear
        self.base, self.output = base, output._replace(linear=self.linear)
        self._weight, self._bias = _arrays(self.linear)
        self._base_weight, self._base_bias = _arrays(base.linear)
        self._factor = TallQR(sum(self._weight.shape))

    def add(self, inputs: Float[np.ndarray, "row n"], base_inputs: Float[np.ndarray, "row m"]) -> None:
        """Add the inputs of both models' output projections for the same tokens."""
        residuals = base_inputs @ self._base_weight.T + self._base_bias - inputs @ self._weight.T - self._bias
        self._factor.add(np.concatenate([inputs, residuals], axis=1))

    def apply(self, ridge: float) -> None:
        """Change the weight, and the bias if there is one."""
        if not self._factor.rows:
            return
        # Columns of the R factor: the constant, the inputs, the residuals. Without a bias the constant is left out.
        n_free, n_inputs = int(self.linear.bias is not None), self._weight.shape[1]
        root = self._factor.root()
        change = solve_ridge(root[:, 1 - n_free : 1 + n_inputs], root[:, 1 + n_inputs :], ridge, n_free=n_free)
        with torch.no_grad():
            self.linear.weight.copy_(torch.from_numpy(self._weight + change[n_free:].T))
            if n_free:
                self.linear.bias.copy_(torch.from_numpy(self._bias + change[0]))


def solve_ridge(
    inputs: Float[np.ndarray, "row n"], targets: Float[np.ndarray, "row out"], ridge: float, *, n_free: int = 0
) -> Float[np.ndarray, "n out"]:
    """Return the D that minimises ‖targets − inputs D‖² + λ ‖D‖².

    λ is ridge times the mean over columns of ‖column of inputs‖².
    n_free: the number of first columns without a penalty, which do not count in λ. Inputs of zeros give zeros.
    """
    squares = np.square(inputs[:, n_free:]).sum()
    penalty = np.sqrt(ridge * squares / max(1, inputs.shape[1] - n_free)) * np.eye(inputs.shape[1])
    penalty[:n_free] = 0
    rows = np.concatenate([inputs, penalty])
    change: np.ndarray = np.linalg.lstsq(rows, np.pad(targets, ((0, len(penalty)), (0, 0))), rcond=None)[0]
    return change


def read_inputs(model: Family, outputs: Sequence[Output], tokens: Tokens) -> dict[str, Float[np.ndarray, "row n"]]:
    """Return the inputs of every output that runs in one pass, by name, one row per token without PADDING."""
    valid = {stack: kinds != TokenKind.PADDING for stack, kinds in tokens.kinds.items()}
    by_name = {output.name: output for output in outputs}
    rows: dict[str, list[np.ndarray]] = {name: [] for name in by_name}

    def add(name: str, states: torch.Tensor) -> torch.Tensor:
        output = by_name[name]
        values = states.detach().double().cpu().numpy()
        # An expert that no token chose has no row.
        values = values.reshape(math.prod(values.shape[:-2]), *values.shape[-2:])
        rows[name].append(values[output.align(values.shape[:2], valid[output.stack])])
        return states.new_empty(0)

    with capture({}, {name: output.linear for name, output in by_name.items()}, add):
        for _ in model.hidden_states(tokens):
            pass
    return {name: np.concatenate(blocks) for name, blocks in rows.items() if blocks}


def _arrays(linear: Any) -> tuple[np.ndarray, Any]:
    """Return weight and bias in float64; a missing bias is 0."""
    weight, bias = linear.weight, linear.bias
    return weight.detach().double().cpu().numpy(), 0.0 if bias is None else bias.detach().double().cpu().numpy()


class OutputLoss(NamedTuple):
    """Squared error of an MLP's output as a function of the weights of its output Linear.

    matrix: A, second moments of [1, neurons] over all tokens plus the penalty; without the first row and column if
    the Linear has no bias. weights: W, the transposed weights of the Linear, with its bias as first row. n_free: 1 with
    a bias, which is never removed, and 0 without. output: sum of squared outputs.
    The loss of other weights V is tr((V − W)ᵀ A (V − W)).
    """

    matrix: Float[np.ndarray, "row row"]
    weights: Float[np.ndarray, "row out"]
    n_free: int
    output: float


class Elimination(NamedTuple):
    """Removal of the neurons of an MLP, one after the other.

    order: neurons, the first to be removed first. errors: squared error of the output after the removal of 0, 1, ...
    neurons, relative to the squared output; from 0 on, never decreasing.
    """

    loss: OutputLoss
    order: Int[np.ndarray, " neuron"]
    errors: Float[np.ndarray, " removed"]

    def remaining_neurons(self, width: int) -> Int[np.ndarray, " neuron"]:
        """Return the ascending neurons that remain at a width."""
        return np.sort(self.order[len(self.order) - width :])


def find_mlps(model: Family) -> list[Mlp]:
    """Return the MLPs of a model, in the order of `Family.weights`, by the names of its matrices.

    An MLP is left out if one of its matrices is not a Linear of its own.
    """
    paths = {id(module): path for path, module in model.network.named_modules()}
    grouped: dict[tuple[str, int, str], dict[str, str]] = {}
    for matrix in model.weights():
        role, _, expert = matrix.name.partition(".")
        if role in (*INPUTS, OUTPUT) and (path := paths.get(id(matrix.linear))):
            grouped.setdefault((matrix.stack, matrix.layer, expert), {})[role] = path
    return [
        Mlp(*key, tuple(path for role, path in roles.items() if role != OUTPUT), roles[OUTPUT])
        for key, roles in grouped.items()
        if OUTPUT in roles and len(roles) > 1
    ]


def gather_losses(model: Family, all_mlps: Sequence[Mlp], parts: Sequence[Tokens]) -> dict[str, OutputLoss]:
    """Return the loss of every MLP, by its name, over all tokens of calibration windows without PADDING.

    An MLP that no token reaches, such as an expert that is never chosen, gets the identity as A. HealthError as in
    `hidden_states`.
    """
    outputs = [mlp_output(mlp, model.network) for mlp in all_mlps]
    factors = {output.name: TallQR(output.linear.in_features) for output in outputs}
    for tokens in parts:
        for start in range(0, len(tokens), model.batch):
            batch = tokens.take(np.arange(start, min(start + model.batch, len(tokens))))
            for name, rows in read_inputs(model, outputs, batch).items():
                factors[name].add(rows)
    return {output.name: _output_loss(output.linear, factors[output.name]) for output in outputs}


def eliminate(loss: OutputLoss) -> Elimination:
    """Return the order in which neurons are removed, and the error after each removal.

    Equation: the removal of neuron j with the least error of the best weights of all others costs
    ‖W_j‖² / (A⁻¹)_jj, after which W becomes W − (A⁻¹)_:j W_j / (A⁻¹)_jj, and row and column j of A⁻¹ are eliminated.
    The neuron with the least cost is removed next.
    Source: Optimal Brain Surgeon (Hassibi and Stork 1993), with all weights of a neuron as one (ZipLM, Kurtic et al.
    2023). Deviations: the bias is fitted too; of more than SINGLE neurons, several are removed at a time.
    Degenerate input: a neuron that is always 0, or that has a twin, costs no more than the penalty.
    """
    inverse, weights = np.linalg.inv(loss.matrix), loss.weights.copy()
    ids = np.arange(-loss.n_free, len(inverse) - loss.n_free)
    order: list[np.ndarray] = []
    errors = [np.zeros(1)]
    while (n_left := int((ids >= 0).sum())) > 0:
        costs = np.square(weights).sum(axis=1) / np.diagonal(inverse)
        costs[ids < 0] = np.inf
        count = 1 if n_left <= SINGLE else max(1, n_left // GROUPS)
        out = np.argpartition(costs, count - 1)[:count]
        out = out[np.argsort(costs[out])]
        solved = np.linalg.solve(inverse[np.ix_(out, out)], weights[out])
        cost = float(np.sum(weights[out] * solved))
        errors.append(errors[-1][-1] + max(cost, 0.0) * np.arange(1, count + 1) / count)
        order.append(ids[out])
        weights = np.delete(weights - inverse[:, out] @ solved, out, axis=0)
        shrunk = inverse - inverse[:, out] @ np.linalg.solve(inverse[np.ix_(out, out)], inverse[out])
        inverse, ids = np.delete(np.delete(shrunk, out, axis=0), out, axis=1), np.delete(ids, out)
    relative = np.concatenate(errors) / max(loss.output, np.finfo(float).tiny)
    return Elimination(loss, np.concatenate(order), relative)


def best_weights(loss: OutputLoss, neuron_ids: Int[np.ndarray, " neuron"]) -> Float[np.ndarray, "row out"]:
    """Return the weights of the bias, if there is one, and of the kept neurons with the least error.

    V_S = W_S + A_SS⁻¹ A_SR W_R, with S the kept rows and R the others.
    """
    free = loss.n_free
    stay = np.concatenate((np.arange(free), np.asarray(neuron_ids) + free))
    gone = np.setdiff1d(np.arange(len(loss.matrix)), stay)
    matrix, weights = loss.matrix, loss.weights
    change = np.linalg.solve(matrix[np.ix_(stay, stay)], matrix[np.ix_(stay, gone)] @ weights[gone])
    fitted: np.ndarray = weights[stay] + change
    return fitted


def _output_loss(linear: Any, factor: TallQR) -> OutputLoss:
    """Return the loss of a Linear with these inputs; its A is the identity if there are none.

    The penalty is RIDGE times the mean squared input, for every neuron but not for the bias.
    """
    weight, n_free = linear.weight.detach().double().cpu().numpy().T, int(linear.bias is not None)
    weights = np.concatenate((linear.bias.detach().double().cpu().numpy()[None], weight)) if n_free else weight
    if not factor.rows:
        return OutputLoss(np.eye(len(weights)), weights, n_free, float(np.square(weights).sum()))
    root = factor.root()[:, 1 - n_free :]
    moments = root.T @ root
    neurons = np.arange(n_free, len(moments))
    output = float(np.square(root @ weights).sum())
    # A matrix of zeros cannot be inverted: dead neurons alone have the penalty 1.
    moments[neurons, neurons] += RIDGE * (moments[neurons, neurons].mean() or 1.0)
    return OutputLoss(moments, weights, n_free, output)
