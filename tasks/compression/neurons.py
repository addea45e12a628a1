"""Selection of neurons of MLPs: the order of their removal, and the weights that make up for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from tsfmscope.tasks.compression.refit import RIDGE
from tsfmscope.tasks.models.common.capture import capture
from tsfmscope.tasks.models.common.mlp import INPUTS, OUTPUT, Mlp
from tsfmscope.tasks.models.types import TokenKind
from tsfmscope.tasks.ranks.tall import TallQR

if TYPE_CHECKING:
    import torch

    from tsfmscope.tasks.models.base import Family
    from tsfmscope.tasks.models.types import Tokens

# Up to this number, neurons are removed one by one; of n more than that, n // GROUPS are removed at a time.
SINGLE, GROUPS = 512, 32


class Elimination(NamedTuple):
    """Removal of the neurons of an MLP, one after the other.

    order: neurons, the first to be removed first. errors: squared error of the output after the removal of 0, 1, ...
    neurons, relative to the squared output; from 0 on, never decreasing.
    """

    order: Int[np.ndarray, " neuron"]
    errors: Float[np.ndarray, " removed"]

    def remaining_neurons(self, width: int) -> Int[np.ndarray, " neuron"]:
        """Return the ascending neurons that remain at a width."""
        return np.sort(self.order[len(self.order) - width :])


class Quadratic(NamedTuple):
    """Squared error of an MLP's output as a function of the output Linear's weights.

    matrix: A, second moments of [1, neurons] over all tokens plus the penalty; without the first row and column if
    the Linear has no bias. weights: W, the transposed weights of the Linear, with its bias as first row. n_free: 1 with
    a bias, which is never removed, and 0 without. output: sum of squared outputs.
    The error of other weights V is tr((V − W)ᵀ A (V − W)).
    """

    matrix: Float[np.ndarray, "row row"]
    weights: Float[np.ndarray, "row out"]
    n_free: int
    output: float


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


def gather(model: Family, all_mlps: Sequence[Mlp], parts: Sequence[Tokens]) -> dict[str, Quadratic]:
    """Return the quadratic of every MLP, by its name, over all tokens of calibration windows without PADDING.

    An MLP that no token reaches, such as an expert that is never chosen or a decoder that does not run, gets the
    identity as A. HealthError as in `hidden_states`.
    """
    linears: dict[str, Any] = {
        mlp.name: model.network.get_submodule(mlp.output) for mlp in all_mlps if mlp.stack in model.stacks
    }
    factors = {name: TallQR(linear.in_features) for name, linear in linears.items()}
    stacks = {mlp.name: mlp.stack for mlp in all_mlps}
    for tokens in parts:
        for start in range(0, len(tokens), model.batch):
            batch = tokens.take(np.arange(start, min(start + model.batch, len(tokens))))
            for name, rows in read_neurons(model, linears, stacks, batch):
                factors[name].add(rows)
    return {mlp.name: _quadratic(model.network.get_submodule(mlp.output), factors.get(mlp.name)) for mlp in all_mlps}


def read_neurons(
    model: Family, linears: Mapping[str, Any], stacks: Mapping[str, str], tokens: Tokens
) -> Iterator[tuple[str, Float[np.ndarray, "token neuron"]]]:
    """Yield the inputs of some Linears in one pass, by name, one row per token without PADDING.

    stacks: name -> stack of the Linear. Of a Linear that reads chosen tokens only, such as that of an expert, all rows
    are taken, since it is not known which tokens they are.
    """
    rows: dict[str, np.ndarray] = {}

    def take(name: str, states: torch.Tensor) -> torch.Tensor:
        values = states.detach().float().cpu().numpy().reshape(-1, states.shape[-1])
        is_token = (tokens.kinds[stacks[name]] != TokenKind.PADDING).reshape(-1)
        values = values[is_token] if len(is_token) == len(values) else values
        rows[name] = np.concatenate((rows[name], values)) if name in rows else values
        return states.new_empty(0)

    with capture({}, linears, take):
        for _ in model.hidden_states(tokens):
            pass
    yield from rows.items()


def eliminate(quadratic: Quadratic) -> Elimination:
    """Return the order in which neurons are removed, and the error after each removal.

    Equation: the removal of neuron j with the least error of the best weights of all others costs
    ‖W_j‖² / (A⁻¹)_jj, after which W becomes W − (A⁻¹)_:j W_j / (A⁻¹)_jj, and row and column j of A⁻¹ are eliminated.
    The neuron with the least cost is removed next.
    Source: Optimal Brain Surgeon (Hassibi and Stork 1993), with all weights of a neuron as one (ZipLM, Kurtic et al.
    2023). Deviations: the bias is fitted too; of more than SINGLE neurons, several are removed at a time.
    Degenerate input: a neuron that is always 0, or that has a twin, costs no more than the penalty.
    """
    inverse, weights = np.linalg.inv(quadratic.matrix), quadratic.weights.copy()
    ids = np.arange(-quadratic.n_free, len(inverse) - quadratic.n_free)
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
    return Elimination(np.concatenate(order), np.concatenate(errors) / max(quadratic.output, np.finfo(float).tiny))


def best_weights(quadratic: Quadratic, neuron_ids: Int[np.ndarray, " neuron"]) -> Float[np.ndarray, "row out"]:
    """Return the weights of the bias, if there is one, and of the kept neurons with the least error.

    V_S = W_S + A_SS⁻¹ A_SR W_R, with S the kept rows and R the others.
    """
    free = quadratic.n_free
    stay = np.concatenate((np.arange(free), np.asarray(neuron_ids) + free))
    gone = np.setdiff1d(np.arange(len(quadratic.matrix)), stay)
    matrix, weights = quadratic.matrix, quadratic.weights
    change = np.linalg.solve(matrix[np.ix_(stay, stay)], matrix[np.ix_(stay, gone)] @ weights[gone])
    fitted: np.ndarray = weights[stay] + change
    return fitted


def _quadratic(linear: Any, factor: TallQR | None) -> Quadratic:
    """Return the quadratic of a Linear's inputs; the identity if there are none.

    The penalty is RIDGE times the mean squared input, for every neuron but not for the bias.
    """
    weight, n_free = linear.weight.detach().double().cpu().numpy().T, int(linear.bias is not None)
    weights = np.concatenate((linear.bias.detach().double().cpu().numpy()[None], weight)) if n_free else weight
    if factor is None or not factor.rows:
        return Quadratic(np.eye(len(weights)), weights, n_free, float(np.square(weights).sum()))
    root = factor.root()[:, 1 - n_free :]
    moments = root.T @ root
    neurons = np.arange(n_free, len(moments))
    output = float(np.square(root @ weights).sum())
    # A matrix of zeros cannot be inverted: dead neurons alone have the penalty 1.
    moments[neurons, neurons] += RIDGE * (moments[neurons, neurons].mean() or 1.0)
    return Quadratic(moments, weights, n_free, output)
