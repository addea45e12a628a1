"""Selection of neurons of MLPs: the order of their removal, and the weights that make up for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from tsfmscope.compression.refit import RIDGE, mlp_output, read_inputs
from tsfmscope.models.common.mlp import Mlp
from tsfmscope.ranks.tall import TallQR

if TYPE_CHECKING:
    from tsfmscope.models.base import Family
    from tsfmscope.models.types import Tokens

# Names of MLP matrices in `Family.weights`: those whose rows are neurons, and the one whose columns are.
INPUTS, OUTPUT = ("mlp_in", "mlp_gate"), "mlp_out"
# Up to this number, neurons are removed one by one; of n more than that, n // GROUPS are removed at a time.
SINGLE, GROUPS = 512, 32


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


def mlps(model: Family) -> list[Mlp]:
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
