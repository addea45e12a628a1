"""Parts of a network, and a network that runs without one of them.

A part adds something to the residual stream: a layer (block), its attention, its MLP, one head, or the share of a
layer in a group of directions. While `without` is open, what the part adds is replaced:

skip: by zero. mean: by its mean over the windows of the call, position by position. resample: by what it adds in
another window of the call. So all windows should be forecast at once.

Skipping shows what a smaller network would lose. Means and resampling keep values that the network is used to, and show
whether what the part adds must fit the window (Zhang and Nanda 2024, "Towards best practices of activation patching",
section 2; Chan et al. 2022, "Causal scrubbing"). A head is a block of columns of the output matrix, as in Michel et al.
2019, "Are sixteen heads really better than one?", eq. 2. Skipping all layers after a layer applies the final norm and
the head to its state: the logit lens (nostalgebraist 2020; Belrose et al. 2023, eq. 4).

Hooks replace the values. Where a forecast reads the weights of modules without calling them, as the samplers of T5 do,
a part is skipped by zeros in its output matrices until the context is closed. That is the same, since the norms of
these families precede the branches. It cannot be averaged or resampled there.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from tsfmscope.forecasting.rolling import window_errors
from tsfmscope.forecasting.scores import window_seed
from tsfmscope.models.base import QUANTILES, BlockFamily, Forecaster
from tsfmscope.models.common.attention import NAMES, AttentionLayer
from tsfmscope.models.common.capture import capture, first_tensor, in_batches, kept_rows
from tsfmscope.models.types import TokenKind, Tokens
from tsfmscope.series.types import Windows

if TYPE_CHECKING:
    import torch

KINDS = ("layer", "attention", "mlp", "head", "directions")
WAYS = ("skip", "mean", "resample")
# Shares of the sum of squares that end the groups of directions.
SHARES = (0.5, 0.9)
# Tokens of each stack from which directions are computed, a seeded sample.
TOKENS = 8192
# Largest number of windows in a call.
BATCH = 1 << 15

# Modules that a forecast calls, and whether each of the first two axes of what they return is always a multiple of the
# number of windows.
Calls = dict[Any, tuple[bool, bool]]
Bases = Mapping[tuple[str, int], Sequence[Float[np.ndarray, "width direction"]]]


class Site(NamedTuple):
    """Place of a value in a network: what a module returns, reads ("input"), or adds to its input ("added").

    axis: that of the windows.
    """

    module: Any
    value: str = "output"
    axis: int = 0


@dataclass(frozen=True, eq=False)
class Part:
    """Part of a network.

    kind: one of KINDS. name: of the part in its layer. sites: where its values are; more than one only where no module
    returns them together. outputs: its output matrices. weights: its modules, and the share of each that is its own;
    empty for directions. basis: directions [d, r] that are replaced; None: all. columns: those of the input of the
    output matrix that are replaced; None: all.
    """

    stack: str
    layer: int
    kind: str
    name: str
    sites: tuple[Site, ...]
    outputs: tuple[Any, ...]
    weights: tuple[tuple[Any, float], ...] = ()
    basis: torch.Tensor | None = None
    columns: slice | None = None

    def count(self, size: Callable[[Any], float]) -> float:
        """Return the sum of the sizes of its modules; NaN where that is 0, as for directions."""
        return sum(share * size(inner) for module, share in self.weights for inner in module.modules()) or math.nan


@contextlib.contextmanager
def record_calls(model: BlockFamily, calls: Calls, donors: Int[np.ndarray, " window"]) -> Iterator[None]:
    """Add the modules of blocks that are called while the context is open to `calls`. donors: one per window."""

    def add(module: Any, output: torch.Tensor) -> torch.Tensor:
        fits, shape = calls.get(module, (True, True)), (*output.shape[:-1], 0)
        first, second = (fit and size > 0 and size % len(donors) == 0 for fit, size in zip(fits, shape, strict=False))
        calls[module] = first, second
        return output

    modules = {module: module for blocks in model.blocks.values() for block in blocks for module in block.modules()}
    with capture(modules, take=add):
        yield


def count_products(network: Any, run: Callable[[], object]) -> dict[Any, int]:
    """Return module -> multiply-adds of its product with a matrix, for every Linear that `run` calls."""
    import torch

    products: dict[Any, int] = defaultdict(int)

    def add(module: Any, output: torch.Tensor) -> torch.Tensor:
        products[module] += output.numel() * module.in_features
        return output

    linears = {module: module for module in network.modules() if isinstance(module, torch.nn.Linear)}
    # The loss of some families draws patch sizes.
    with torch.inference_mode(), torch.random.fork_rng(devices=[]), capture(linears, take=add):
        torch.manual_seed(0)
        run()
    return products


def directions(model: BlockFamily, tokens: Sequence[Tokens], seed: int) -> dict[tuple[str, int], list[np.ndarray]]:
    """Return (stack, layer) -> orthonormal groups [d, r] of the singular directions of what each layer adds.

    With C [token, d] what layer l adds to the tokens, x_l - x_(l - 1), and C = U S V^T, the first group is the fewest
    leading columns of V with at least half of the sum of squares of S; the second reaches 90 %, and the third is the
    rest. Source: the truncated SVD (Eckart and Young 1936), at shares instead of a rank. C is not centred, so that its
    mean is part of it. Padding is left out. A group may be empty, and then it is left out. A layer that adds nothing
    has no groups. Stacks without hidden states have none.
    """
    kinds = [kind.name.lower() for kind in TokenKind if kind is not TokenKind.PADDING]
    moments: dict[tuple[str, int], np.ndarray] = defaultdict(lambda: np.zeros((model.width, model.width)))
    for item in tokens:
        before = None
        for state in model.hidden_states(item, kept_rows(item, kinds, TOKENS, seed)):
            if state.layer and not state.normed:
                assert before is not None
                added = state.states.astype(np.float64) - before
                moments[state.stack, state.layer] += added.T @ added
            before = state.states
    groups = {}
    for key, moment in moments.items():
        values, vectors = np.linalg.eigh(moment)
        squares, vectors = np.maximum(values[::-1], 0), vectors[:, ::-1]
        if squares.sum() > 0:
            ends = np.searchsorted(np.cumsum(squares) / squares.sum(), SHARES) + 1
            edges = [0, *ends.tolist(), len(squares)]
            groups[key] = [vectors[:, first:last] for first, last in itertools.pairwise(edges) if first < last]
    return groups


def list_parts(model: BlockFamily, kinds: Collection[str], called: Collection[Any], bases: Bases) -> Iterator[Part]:
    """Yield the parts of a network by layer: the layer, its attentions with their heads, its MLP, and its directions.

    kinds: some of KINDS. called: modules that a forecast calls. bases: as `directions` returns them.
    """
    import torch

    for stack, blocks in model.blocks.items():
        for layer, block in enumerate(blocks, start=1):
            make = partial(Part, stack, layer)
            attentions = [own for own in model.attentions() if (own.stack, own.layer) == (stack, layer)]
            own = [part for attention in attentions for part in _attention_parts(make, attention)]
            own += _other_parts(make, model, block)
            branches = [part for part in own if part.kind != "head"]
            outputs = tuple(output for part in branches for output in part.outputs)
            sites = tuple(site for part in branches for site in part.sites)
            sites = (Site(block, "added"),) if block in called else sites
            parts = [make("layer", "layer", sites, outputs, ((block, 1.0),)), *own]
            last = 0
            for basis in bases.get((stack, layer), ()):
                first, last = last + 1, last + basis.shape[1]
                vectors = torch.from_numpy(basis.astype(np.float32)).to(next(block.parameters()).device)
                name = f"directions {first} to {last}" if last > first else f"direction {first}"
                parts.append(make("directions", name, sites, outputs, basis=vectors))
            yield from (part for part in parts if part.kind in kinds)


def _attention_parts(make: Callable[..., Part], attention: AttentionLayer) -> Iterator[Part]:
    output, heads, width = attention.linear("o"), attention.heads, attention.widths.value
    # Attention over a group of series has tokens before windows.
    axis, matrices = int(attention.kind == "group"), {name: attention.linear(name) for name in NAMES}
    weights = tuple((matrix, 1.0) for matrix in matrices.values())
    yield make("attention", f"{attention.kind} attention", (Site(output, axis=axis),), (output,), weights)
    # Keys and values that several heads share stay when one of these goes.
    weights = tuple((matrices[name], 1 / heads) for name in (NAMES if attention.groups == heads else "qo"))
    for head in range(heads):
        name, columns = f"{attention.kind} head {head + 1}", slice(head * width, (head + 1) * width)
        yield make("head", name, (Site(output, "input", axis),), (output,), weights, columns=columns)


def _other_parts(make: Callable[..., Part], model: BlockFamily, block: Any) -> Iterator[Part]:
    modules = dict(block.named_modules())
    matrices = {path: name for path, name in model.mlp_paths().items() if path in modules}
    outputs = [path for path, name in matrices.items() if name.startswith("mlp_out")]
    if len(outputs) == 1:
        output = modules[outputs[0]]
        yield make("mlp", "MLP", (Site(output),), (output,), tuple((modules[path], 1.0) for path in matrices))
    others = {path: names for path, names in model.branches.items() if path in modules}
    if len(outputs) > 1:
        # The module that adds up the experts.
        names = zip(*(path.split(".") for path in outputs), strict=False)
        path = ".".join(name for name, *rest in names if {*rest} == {name})
        others[path] = ("mlp", "MLP")
    for path, (kind, name) in others.items():
        yield make(kind, name, (Site(modules[path]),), (), ((modules[path.partition(".")[0]], 1.0),))


def can_ablate(part: Part, way: str, calls: Calls) -> bool:
    """Return whether a part can be ablated in this way. calls: of an intact forecast."""
    is_called = bool(part.sites) and all(site.module in calls for site in part.sites)
    if way == "skip":
        return is_called or bool(part.outputs)
    site = part.sites[0]
    return is_called and len(part.sites) == 1 and calls[site.module][site.axis]


@contextlib.contextmanager
def without(parts: Sequence[Part], way: str, calls: Calls, donors: Int[np.ndarray, " window"]) -> Iterator[None]:
    """Ablate parts in a network while the context is open; afterwards, also after an error, it is as it was.

    way: one of WAYS. calls: of an intact forecast. donors: for each window of a call, the window that replaces it where
    `way` is "resample".
    """
    with contextlib.ExitStack() as stack:
        for part in parts:
            if all(site.module in calls for site in part.sites):
                for site in part.sites:
                    handle = _register(site, partial(_replace, part, way, site.axis, donors))
                    stack.callback(handle.remove)
            else:
                stack.enter_context(_with_zeros(part))
        yield


def _register(site: Site, replace: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Register the hook that replaces a site's value in place."""

    def change(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any = None) -> None:
        given = first_tensor((*args, *kwargs.values()), module)
        value = given if site.value == "input" else first_tensor(output, module)
        value.copy_(given + replace(value - given) if site.value == "added" else replace(value))

    if site.value == "input":
        return site.module.register_forward_pre_hook(change, with_kwargs=True)
    return site.module.register_forward_hook(change, with_kwargs=True)


def _replace(part: Part, way: str, axis: int, donors: Int[np.ndarray, " window"], value: torch.Tensor) -> torch.Tensor:
    """Return a value whose columns, or whose share in the directions, are replaced."""
    new = value.new_zeros(()).expand_as(value)
    if way != "skip":
        rows = value.movedim(axis, 0)
        other = rows.mean(dim=0, keepdim=True) if way == "mean" else rows.unflatten(0, (len(donors), -1))[donors]
        new = (other.expand_as(rows) if way == "mean" else other.flatten(0, 1)).movedim(0, axis)
    if part.columns is not None:
        changed = value.clone()
        changed[..., part.columns] = new[..., part.columns]
        return changed
    if part.basis is None:
        return new
    basis = part.basis.to(value.dtype)
    return value + (new - value) @ basis @ basis.T


@contextlib.contextmanager
def _with_zeros(part: Part) -> Iterator[None]:
    """Set a part's rows, columns or directions of its output matrices to zero while the context is open."""
    factor = "wide" if part.columns is None else "narrow"
    values = [item.data for output in part.outputs for item in getattr(output, factor, output).parameters()]
    originals = [value.clone() for value in values]
    try:
        for value in values:
            if part.columns is None:
                value.sub_(value if part.basis is None else (basis := part.basis.to(value.dtype)) @ (basis.T @ value))
            elif value.ndim == 2:
                value[:, part.columns] = 0
        yield
    finally:
        for value, original in zip(values, originals, strict=True):
            value.copy_(original)


def choose_donors(series: Sequence[str], seed: int) -> Int[np.ndarray, " window"]:
    """Return another window for each window, of another series unless one series has more than half of them.

    No window is its own, and each is used once. One window alone is its own.
    """
    rng = np.random.default_rng([seed, 6])
    rank = dict(zip(names := sorted(set(series)), rng.permutation(len(names)).tolist(), strict=True))
    order = sorted(rng.permutation(len(series)).tolist(), key=lambda window: rank[series[window]])
    shift = min(max(Counter(series).values()), len(order) // 2)
    donors = np.empty(len(order), dtype=np.int64)
    donors[order] = np.roll(order, -shift)
    return donors


def forecast_errors(
    model: Forecaster, windows: Sequence[Windows], *, samples: int, seed: int,
    make_context: Callable[[Int[np.ndarray, " window"]], contextlib.AbstractContextManager[None]],
) -> Float[np.ndarray, "error window"]:  # fmt: skip
    """Return the errors of `window_errors` of each window, one data set after another.

    make_context: takes the `choose_donors` of the windows of one data set, and returns the context of their forecast.
    """
    errors = []
    with in_batches(model, BATCH):
        for item in windows:
            seeds = [window_seed(str(seed), name) for name in item.series]
            with make_context(choose_donors(item.series, seed)):
                forecast = model.forecast(item, levels=QUANTILES, samples=samples, seeds=seeds)
            errors.append(window_errors(item, forecast.values, QUANTILES))
    return np.concatenate(errors, axis=1)
