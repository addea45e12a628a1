"""Bits of every matrix of a model under one budget of bytes.

All matrices are rounded, embeddings and heads included. A matrix gets the bits and the groups with which the outputs of
the model change least: its effect on them is measured once, with few bits, and scales with the error of its own
outputs. Vectors are stored in float16.
"""

from __future__ import annotations

import copy
import itertools
import math
import operator
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float, Float32

from tsfmscope.compression.budget import BudgetError, Curve, allocate
from tsfmscope.compression.candidates import inert_matrices
from tsfmscope.compression.export import file_bytes, save
from tsfmscope.compression.fidelity import last_states
from tsfmscope.compression.outputs import has_outputs, loss_batches, outputs
from tsfmscope.compression.rounding import DAMPING, output_error, round_matrix, round_plainly
from tsfmscope.errors import HealthError, ModelError
from tsfmscope.models.base import Forecaster
from tsfmscope.models.common.layers import compression_entries
from tsfmscope.models.common.low_bits import GROUPS, SHORTEST, is_roundable, matrix_bytes
from tsfmscope.models.common.scale import mean_and_deviation

if TYPE_CHECKING:
    import torch

    from tsfmscope.compression.options import Method
    from tsfmscope.models.base import Family
    from tsfmscope.models.types import WeightMatrix
    from tsfmscope.series.types import Windows

# Bits and group of a matrix.
Option = tuple[int, int]
# Zeros, in a branch that goes.
REMOVED: Option = (0, 0)
# What is tried; 7 bits are hardly smaller than 8.
OPTIONS: tuple[Option, ...] = tuple(itertools.product((2, 3, 4, 5, 6, 8), GROUPS))
# Bits with which the effect of a matrix on the outputs is measured, in its smallest groups.
PROBE = 3
# Least effect of a matrix, as a share of the median: windows of other kinds, such as several series that are forecast
# together, may need what these do not.
LEAST_EFFECT = 0.1
# Windows on whose outputs the effects are measured; the moments are those of all.
PROBED = 64
# Windows on which the matrices are fitted to the inputs that the rounded network gives them.
FITTED = 256
# Largest squared change of the inputs, as a share of their squares, with which a matrix is fitted: the rows of an
# expert are those that a router chooses, and are other ones in the rounded network.
FARTHEST_INPUTS = 0.3
# Rows of a matrix whose errors by bits are compared.
COMPARED = 256
# Times that the budget is corrected by the size of the file that it gave.
CORRECTIONS = 6
# Largest summed change without branches, over that with all, with which their removal is tried. The trial takes as long
# as the search without it, and removals at 0.8 to 0.9 did not lower errors on real data.
LARGEST_CHANGE = 0.7
# Stack of a matrix that belongs to none, such as an embedding or a head.
OUTSIDE = "outside"


class Matrix(NamedTuple):
    """Matrix of a network, and the moments of its inputs.

    These are None where none were seen: some such matrices have 100,000 columns, as position embeddings.
    """

    path: str
    weight: Float32[np.ndarray, "row column"]
    moments: Float[np.ndarray, "column column"] | None


class Choice(NamedTuple):
    """Matrices that get the same bits, and the options for them.

    options: bits and group, by size. curve: bytes, and change of what the model computes, by option.
    """

    matrices: list[Matrix]
    options: list[Option]
    curve: Curve


class Plan(NamedTuple):
    """Choices for all matrices of a model.

    full: bytes of its file. others: those of a rounded file that are in no matrix. windows: those of the last fit.
    branches: for each attention and MLP that may go, the change of what the model computes without it, and the numbers
    of its choices.
    """

    choices: list[Choice]
    full: int
    others: int
    windows: Sequence[Windows]
    branches: Sequence[tuple[float, list[int]]] = ()

    def apply(self, model: Family, method: Method) -> list[dict[str, Any]]:
        """Round a model in place to the share of the bytes of `method`; return a row per matrix.

        BudgetError if the file is too large even with the fewest bits.
        """
        share = method.ranks.rule[1]
        smaller = self._without_branches(int(share * self.full) - self.others)
        run = _runner(model, self.windows)
        expected = run() if smaller else []
        model.compression = {**method.to_dict(), **compression_entries(model.attentions())}
        store_vectors_in_halves(model.network)
        rounded: dict[tuple[str, Option], np.ndarray] = {}
        tried = []
        for plan in (self, smaller) if smaller else (self,):
            options = plan._fill(model, share, rounded)
            _write(model.network, options, rounded)
            fitted = rounded | _fit_in_order(model, options, self.windows)
            tried.append((_distance(model, run(), expected) if smaller else 0.0, options, fitted))
        _, options, fitted = min(tried, key=operator.itemgetter(0))
        _write(model.network, options, fitted)
        return _rows(model, options, fitted)

    def _fill(
        self, model: Family, share: float, rounded: dict[tuple[str, Option], np.ndarray]
    ) -> list[tuple[Matrix, Option]]:
        """Return the options of least change whose file has this share of the bytes; `rounded` as in `_write`."""
        target = int(share * self.full)
        best: list[tuple[Matrix, Option]] | None = None
        curves = [choice.curve for choice in self.choices]
        least = sum(int(curve.costs[0]) for curve in curves)
        allowed = target - self.others
        for _ in range(CORRECTIONS):
            ranks = allocate(curves, max(allowed, least))
            chosen = self._options(ranks)
            _write(model.network, chosen, rounded)
            spare = target - file_bytes(model)
            used = sum(int(curve.costs[rank - 1]) for curve, rank in zip(curves, ranks, strict=True))
            if spare >= 0:
                best = chosen
            if 0 <= spare < self.full / 1000 or (spare < 0 and used == least):
                break
            # What is in no matrix takes about what it took in this file, whose header depends on the bits.
            allowed = used + spare
        if best is None:
            _write(model.network, self._options([1] * len(curves)), rounded)
            # Rounded up, so that the number can be asked for.
            needed = math.ceil(file_bytes(model) / self.full * 1e3) / 1e3
            raise BudgetError(
                f"ranks bytes: got {share}, expected at least {needed:g}, what two bits for all numbers take"
            )
        return best

    def _without_branches(self, budget: int) -> Plan | None:
        """Return the plan with 0 bits for the branches whose removal lowers the summed change; None if it is little.

        Branches are tried from the least change on, each next to those that are gone.
        """
        best, removed = self, 0.0
        least = change_of_all = self._change(budget)
        for effect, numbers in sorted(self.branches):
            if removed + effect >= least:
                break
            choices = list(best.choices)
            for number in numbers:
                choices[number] = Choice(choices[number].matrices, [REMOVED], Curve(np.zeros(1, np.int64), np.zeros(1)))
            trial = best._replace(choices=choices)
            if (change := removed + effect + trial._change(budget)) < least:
                best, removed, least = trial, removed + effect, change
        return best if least < LARGEST_CHANGE * change_of_all else None

    def _change(self, budget: int) -> float:
        """Return the summed change with the best options within a budget of bytes, or with the fewest bits."""
        curves = [choice.curve for choice in self.choices]
        ranks = allocate(curves, max(budget, sum(int(curve.costs[0]) for curve in curves)))
        return sum(float(curve.errors[rank - 1]) for curve, rank in zip(curves, ranks, strict=True))

    def _options(self, ranks: Sequence[int]) -> list[tuple[Matrix, Option]]:
        """Return every matrix with the option of the rank of its choice."""
        return [
            (matrix, choice.options[rank - 1])
            for choice, rank in zip(self.choices, ranks, strict=True)
            for matrix in choice.matrices
        ]


def round_network(network: torch.nn.Module, bits: int) -> None:
    """Round all matrices of a network, in place, to the nearest numbers with one scale per row."""
    import torch

    with torch.no_grad():
        for weight in filter(is_roundable, saved_tensors(network).values()):
            if not bool(torch.isfinite(weight).all()):
                raise ModelError(f"bits {bits}: weights contain NaN or infinity; check the checkpoint and its dtype")
            rows = weight.detach().reshape(len(weight), -1).double().cpu().numpy()
            rounded = round_plainly(rows, bits, 0, np.ones(rows.shape[1]))
            weight.copy_(torch.from_numpy(rounded).reshape(weight.shape))


def measure(model: Family, windows: Sequence[Windows], *, univariate: bool = False) -> Plan:
    """Return what the bits of each matrix cost in bytes and in changes of the outputs.

    The model is not changed. windows: calibration windows, one item per data set, as `equal_windows` returns them.
    univariate: as in `Method`. A matrix that cannot change any forecast has the fewest bits. ModelError for weights
    with NaN or infinity, and for a model without a matrix to round.
    """
    import torch

    trial = copy.copy(model)
    trial.network = copy.deepcopy(model.network).float().eval()
    found = {path: weight for path, weight in saved_tensors(trial.network).items() if is_roundable(weight)}
    if not found:
        raise ModelError(f"{model.name}: has no matrix with rows of {SHORTEST} numbers or more, so none can be rounded")
    if broken := [path for path, weight in found.items() if not bool(torch.isfinite(weight).all())]:
        raise ModelError(f"{model.name}: {broken[0]} contains NaN or infinity; check the checkpoint and its dtype")
    with torch.no_grad():
        moments = _input_moments(trial.network, _runner(trial, windows))
        run = _runner(trial, _spread(windows, PROBED))
        expected = run()
        probed = [
            _Probed.of(path, weight, moments.get(id(weight)), lambda: _distance(trial, run(), expected))
            for path, weight in found.items()
        ]
        branches = []
        for paths in _branch_paths(trial, univariate=univariate):
            if found.keys() >= paths:
                tensors = [found[path] for path in paths]
                zeros = [torch.zeros_like(tensor) for tensor in tensors]
                branches.append((_effect(tensors, zeros, lambda: _distance(trial, run(), expected)), paths))
    inert = _inert_paths(model, univariate=univariate)
    least = LEAST_EFFECT * float(np.median([one.effect for one in probed]))
    probed = [one._replace(effect=0.0 if one.matrix.path in inert else max(one.effect, least)) for one in probed]
    groups, full = _join(trial, probed)
    round_network(trial.network, 8)
    store_vectors_in_halves(trial.network)
    trial.compression = compression_entries(trial.attentions())
    others = file_bytes(trial) - sum(one.size((8, 0)) for one in probed)
    numbers = {one.matrix.path: number for number, group in enumerate(groups) for one in group}
    removable = []
    for effect, paths in branches:
        own = sorted({numbers[path] for path in paths})
        # A file may join matrices of several branches.
        if sum(len(groups[number]) for number in own) == len(paths):
            removable.append((effect, own))
    return Plan([_choice(group) for group in groups], full, others, _spread(windows, FITTED), removable)


class _Probed(NamedTuple):
    """Matrix and the errors of its outputs by option; effect: change of what the model computes with `probe`."""

    matrix: Matrix
    errors: dict[Option, float]
    probe: Option
    effect: float

    @classmethod
    def of(
        cls, path: str, tensor: torch.Tensor, moments: Float[np.ndarray, "column column"] | None,
        distance: Callable[[], float],
    ) -> _Probed:  # fmt: skip
        """Measure a matrix of a network: distance of its outputs while the matrix has PROBE bits.

        The errors of other bits are those of the nearest numbers in up to COMPARED rows: what GPTQ makes up for is
        about the same share of them.
        """
        import torch

        weight = tensor.detach().reshape(len(tensor), -1).cpu().numpy().copy()
        rows, columns = weight.shape
        moments = moments if moments is not None and np.diagonal(moments).any() else None
        sample = weight[np.unique(np.linspace(0, rows - 1, COMPARED).round().astype(int))].astype(np.float64)
        importance = np.ones(columns) if moments is None else np.diagonal(moments)
        options = [(bits, group) for bits, group in OPTIONS if not group or (group < columns and columns % group == 0)]
        errors = {
            (bits, group): output_error(round_plainly(sample, bits, group, importance) - sample, moments)
            for bits, group in options
        }
        probe = (PROBE, min((group for _, group in options if group), default=0))
        rounded = torch.from_numpy(round_matrix(weight, *probe, moments)).reshape(tensor.shape)
        effect = _effect([tensor], [rounded], distance)
        return cls(Matrix(path, weight, moments), errors, probe, effect)

    def costs(self) -> dict[Option, tuple[int, float]]:
        """Return bytes, and change of what the model computes, by option."""
        scale = self.effect / (self.errors[self.probe] or 1.0)
        return {option: (self.size(option), scale * error) for option, error in self.errors.items()}

    def size(self, option: Option) -> int:
        """Return the bytes of the matrix."""
        rows, columns = self.matrix.weight.shape
        return matrix_bytes(rows, columns, *option)


def _effect(tensors: Sequence[torch.Tensor], values: Sequence[torch.Tensor], distance: Callable[[], float]) -> float:
    """Return the distance while the tensors have these values; afterwards they are as they were."""
    kept = [tensor.clone() for tensor in tensors]
    for tensor, value in zip(tensors, values, strict=True):
        tensor.copy_(value)
    effect = distance()
    for tensor, value in zip(tensors, kept, strict=True):
        tensor.copy_(value)
    return effect


def _choice(group: Sequence[_Probed]) -> Choice:
    """Return the choice for matrices of equal bits, without options that a smaller one equals."""
    costs = [one.costs() for one in group]
    sums = {
        option: (sum(cost[option][0] for cost in costs), sum(cost[option][1] for cost in costs))
        for option in costs[0]
        if all(option in cost for cost in costs)
    }
    options: list[Option] = []
    for option in sorted(sums, key=sums.__getitem__):
        if not options or sums[option][1] < sums[options[-1]][1]:
            options.append(option)
    curve = Curve(*(np.array([sums[option][part] for option in options]) for part in (0, 1)))
    return Choice([one.matrix for one in group], options, curve)


def _join(model: Family, probed: Sequence[_Probed]) -> tuple[list[list[_Probed]], int]:
    """Return the matrices in groups that get the same bits, and the bytes of the model's file.

    A group has those that a file joins, such as q, k and v, or one matrix. A file joins those whose rows are in the
    same matrix of it.
    """
    from safetensors.torch import load_file

    names: dict[int, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        save(model, Path(folder))
        files = sorted(Path(folder).glob("*.safetensors"))
        full = sum(file.stat().st_size for file in files)
        for file in files:
            for name, tensor in load_file(file).items():
                if is_roundable(tensor):
                    names |= {hash(row.numpy().tobytes()): name for row in tensor.reshape(len(tensor), -1)}
    groups: dict[str, list[_Probed]] = {}
    for one in probed:
        weight = one.matrix.weight
        largest = weight[np.abs(weight).max(axis=1).argmax()]
        groups.setdefault(names.get(hash(largest.tobytes()), one.matrix.path), []).append(one)
    return list(groups.values()), full


def _write(
    network: torch.nn.Module, options: Sequence[tuple[Matrix, Option]], rounded: dict[tuple[str, Option], np.ndarray]
) -> None:
    """Give a network the rounded matrices; rounded: those that were computed before."""
    import torch

    weights = saved_tensors(network)
    for matrix, option in options:
        if (matrix.path, option) not in rounded:
            is_removed = option == REMOVED
            rounded[matrix.path, option] = (
                np.zeros_like(matrix.weight) if is_removed else round_matrix(matrix.weight, *option, matrix.moments)
            )
        numbers = torch.from_numpy(rounded[matrix.path, option])
        with torch.no_grad():
            weights[matrix.path].copy_(numbers.reshape(weights[matrix.path].shape))


def _fit_in_order(
    model: Family, options: Sequence[tuple[Matrix, Option]], windows: Sequence[Windows]
) -> dict[tuple[str, Option], np.ndarray]:
    """Round the matrices of a rounded model again, in place and in the order of the forward pass; return them.

    Each is first fitted by least squares: its outputs, with the inputs that the matrices before it give in their bits,
    shall be those of the original with its own inputs (the asymmetric reconstruction of Nagel et al. 2020, arXiv
    2004.10568). So it makes up for their errors. Matrices with too different inputs stay, as do those without any.
    """
    import torch

    original, trial = copy.copy(model), copy.copy(model)
    original.network, trial.network = (copy.deepcopy(model.network).float().eval() for _ in range(2))
    _write(original.network, options, {(matrix.path, option): matrix.weight for matrix, option in options})
    chosen = {matrix.path: (matrix, option) for matrix, option in options}
    weights, fitted = saved_tensors(trial.network), dict[tuple[str, Option], np.ndarray]()
    run = _runner(trial, windows)
    with torch.no_grad():
        groups = _paths_in_order(trial.network, _runner(trial, [windows[0].take([0])]))
        expected = _inputs(original.network, _runner(original, windows), [paths[0] for paths in groups])
        for paths in groups:
            wanted, found = expected.pop(paths[0]), _inputs(trial.network, run, paths[:1])[paths[0]].astype(np.float64)
            if wanted.shape != found.shape:
                continue
            change = wanted - found
            if not np.square(change).sum() < FARTHEST_INPUTS * np.square(wanted).sum():
                continue
            moments, cross = _shrunk_moments(found.T @ found, len(found)), found.T @ change
            cross /= len(found) + len(moments)
            damped = moments + DAMPING * float(np.diagonal(moments).mean()) * np.eye(len(moments))
            for matrix, option in (chosen[path] for path in paths if chosen.get(path, (None, REMOVED))[1] != REMOVED):
                target = matrix.weight + np.linalg.solve(damped, cross @ matrix.weight.T).T
                numbers = round_matrix(target.astype(np.float32), *option, moments)
                fitted[matrix.path, option] = numbers
                weights[matrix.path].copy_(torch.from_numpy(numbers).reshape(weights[matrix.path].shape))
    _write(model.network, [chosen[path] for path, _ in fitted], fitted)
    return fitted


def _paths_in_order(network: torch.nn.Module, run: Callable[[], object]) -> list[list[str]]:
    """Return the paths of the weights of all Linears by their first call; those that read one tensor are together.

    A weight that another module has too, such as an embedding, is left out: it would be fitted to one use alone.
    """
    names = {id(weight): path for path, weight in saved_tensors(network).items()}
    owners = Counter(id(weight) for module in network.modules() for weight in module.parameters(recurse=False))
    found: dict[str, torch.Tensor] = {}

    def add(module: Any, arguments: tuple[Any, ...]) -> None:
        if owners[id(module.weight)] == 1:
            found.setdefault(names[id(module.weight)], arguments[0])

    _run_with_hooks(network, run, add)
    groups: list[list[str]] = []
    for path, states in found.items():
        if groups and states is found[groups[-1][0]]:
            groups[-1].append(path)
        else:
            groups.append([path])
    return groups


def _inputs(
    network: torch.nn.Module, run: Callable[[], object], paths: Sequence[str]
) -> dict[str, Float32[np.ndarray, "row column"]]:
    """Return the inputs of the Linears with these weights, one row per token, by path; no row without a call."""
    saved = saved_tensors(network)
    names, parts = {id(saved[path]): path for path in paths}, {path: list[np.ndarray]() for path in paths}

    def add(module: Any, arguments: tuple[Any, ...]) -> None:
        if path := names.get(id(module.weight)):
            # A copy, since layers may write into their inputs.
            states = arguments[0].detach().reshape(-1, module.in_features)
            parts[path].append(states.float().cpu().numpy().copy())

    _run_with_hooks(network, run, add)
    return {path: np.concatenate(rows or [np.empty((0, 0), np.float32)]) for path, rows in parts.items()}


def _run_with_hooks(
    network: torch.nn.Module, run: Callable[[], object], add: Callable[[Any, tuple[Any, ...]], None]
) -> None:
    """Call `run`, and `add` with every Linear and its arguments before each of its passes."""
    import torch

    linears = [module for module in network.modules() if isinstance(module, torch.nn.Linear)]
    hooks = [module.register_forward_pre_hook(add) for module in linears]
    try:
        run()
    finally:
        for hook in hooks:
            hook.remove()


def saved_tensors(network: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return parameters, shared ones once, and the buffers that a network saves, by path."""
    saved = network.state_dict().keys()
    buffers = {path: buffer for path, buffer in network.named_buffers() if path in saved}
    return {**dict(network.named_parameters()), **buffers}


def store_vectors_in_halves(network: torch.nn.Module) -> None:
    """Round the parameters that are no matrices to float16, in place, where it can hold them; buffers stay."""
    import torch

    with torch.no_grad():
        for weight in network.parameters():
            if not is_roundable(weight) and weight.is_floating_point():
                halves = weight.half().float()
                if bool(torch.isfinite(halves).all()):
                    weight.copy_(halves)


def _runner(model: Family, windows: Sequence[Windows]) -> Callable[[], list[torch.Tensor]]:
    """Return a function that computes what the bits shall keep, one item per batch of windows.

    These are quantiles, in standard deviations of the context, where the forecast is one; else the outputs of the pass
    of the loss; and the last states of a family without.
    """
    import torch

    if isinstance(model, Forecaster) and model.direct_quantiles:
        scales = [mean_and_deviation(part.context)[1][:, None, None] for part in windows]

        def quantiles() -> list[torch.Tensor]:
            parts = (model.forecast(part, seeds=[0] * len(part)).values for part in windows)
            return [torch.from_numpy(values / scale) for values, scale in zip(parts, scales, strict=True)]

        return quantiles
    if has_outputs(model):
        batches = list(loss_batches(model, windows, model.batch))
        return lambda: [output.detach().clone() for parts in batches for output in outputs(model, parts, 0)]
    tokens = [model.tokenize(part) for part in windows]
    return lambda: [torch.from_numpy(last_states(model, part)) for part in tokens]


def _spread(windows: Sequence[Windows], count: int) -> list[Windows]:
    """Return up to `count` windows, as many of each data set as of the others, evenly spaced."""
    each = max(1, count // len(windows))
    return [part.take(np.unique(np.linspace(0, len(part) - 1, each).round().astype(int)).tolist()) for part in windows]


def _input_moments(
    network: torch.nn.Module, run: Callable[[], object]
) -> dict[int, Float[np.ndarray, "column column"]]:
    """Return the mean outer product of the inputs of every Linear with themselves, by the id of its weight.

    Off the diagonal it is multiplied by rows / (rows + columns): a matrix of as many columns as rows were seen would
    otherwise be fitted to these rows alone.
    """
    sums, counts = dict[int, np.ndarray](), dict[int, int]()

    def add(module: Any, arguments: tuple[Any, ...]) -> None:
        rows = arguments[0].detach().reshape(-1, module.in_features).double().cpu().numpy()
        key = id(module.weight)
        sums[key] = sums.get(key, 0.0) + rows.T @ rows
        counts[key] = counts.get(key, 0) + len(rows)

    _run_with_hooks(network, run, add)
    return {
        key: _shrunk_moments(sums[key], count)
        for key, count in counts.items()
        if count and np.isfinite(sums[key]).all()
    }


def _shrunk_moments(total: Float[np.ndarray, "column column"], rows: int) -> Float[np.ndarray, "column column"]:
    """Return the mean outer product from a sum over rows, off the diagonal times rows / (rows + columns)."""
    shrunk: np.ndarray = total / (rows + len(total))
    np.fill_diagonal(shrunk, np.diagonal(total) / rows)
    return shrunk


def _distance(model: Family, answers: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> float:
    """Return the mean Kullback-Leibler divergence of logits, or squared change over the variance of the outputs."""
    from torch.nn.functional import kl_div, log_softmax

    found = []
    for answer, wanted in zip(answers, expected, strict=True):
        if model.softmax_head:
            terms = kl_div(log_softmax(answer, -1), log_softmax(wanted, -1), reduction="none", log_target=True)
            found.append(float(terms.sum(-1).mean()))
        else:
            found.append(float((answer - wanted).square().mean() / (wanted.var() or 1.0)))
    if not np.isfinite(found).all():
        raise HealthError(f"{model.name}: the outputs of calibration windows are not finite; use other windows")
    return max(float(np.mean(found)), 0.0)


def _inert_paths(model: Family, *, univariate: bool) -> set[str]:
    """Return the paths of the matrices that cannot change any forecast."""
    inert = inert_matrices(model, univariate=univariate)
    return {path for path, one in _named_matrices(model) if (one.stack, one.attention, one.name) in inert}


def _branch_paths(model: Family, *, univariate: bool) -> list[set[str]]:
    """Return the paths of the matrices of each attention, MLP and other part of a layer, one set per part.

    Attention between series is left out unless `univariate` is true: the calibration windows have one series each.
    """
    branches: dict[tuple[str, int, str], set[str]] = {}
    for path, one in _named_matrices(model):
        kind = one.attention or one.name.partition("_")[0]
        if univariate or kind != "group":
            branches.setdefault((one.stack, one.layer, kind), set()).add(path)
    return list(branches.values())


def _named_matrices(model: Family) -> Iterator[tuple[str, WeightMatrix]]:
    """Yield the matrices of the blocks that are the weight of one module, each after its path."""
    paths = {id(weight): path for path, weight in saved_tensors(model.network).items()}
    for one in model.weights():
        if path := paths.get(id(getattr(one.linear, "weight", None))):
            yield path, one


def _rows(
    model: Family, options: Sequence[tuple[Matrix, Option]], rounded: Mapping[tuple[str, Option], np.ndarray]
) -> list[dict[str, Any]]:
    """Return the rows of the table `compressed_heads`; a matrix of no block has the stack OUTSIDE and its path."""
    named = {
        path: {"stack": one.stack, "layer": one.layer, "attention": one.attention, "part": one.name}
        for path, one in _named_matrices(model)
    }
    rows = []
    for matrix, (bits, group) in options:
        outside = {"stack": OUTSIDE, "layer": 0, "attention": None, "part": matrix.path}
        change = rounded[matrix.path, (bits, group)].astype(np.float64) - matrix.weight
        size = output_error(matrix.weight.astype(np.float64), matrix.moments)
        full = min(matrix.weight.shape)
        ranks = {"full_width": full, "rank": full if bits else 0}
        row = {**ranks, "bits": bits, "group_size": group or matrix.weight.shape[1]}
        error = math.sqrt(output_error(change, matrix.moments) / size) if size else 0.0
        rows.append(named.get(matrix.path, outside) | row | {"relative_error": error})
    return rows
