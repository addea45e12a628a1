"""Comparison of a checkpoint's states and forecasts with those of the family's own package."""

from __future__ import annotations

import importlib
import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tsfmscope.conformance.checkpoints import Checkpoint
from tsfmscope.conformance.subject import NotApplicable, demand, distance
from tsfmscope.models.base import Forecaster
from tsfmscope.models.common.capture import Point, Stack, capture, points
from tsfmscope.models.common.checkpoint_folder import COMPRESSED
from tsfmscope.models.facts import Package
from tsfmscope.models.registry import family_class
from tsfmscope.models.types import PackageForecast, TokenKind, Tokens

if TYPE_CHECKING:
    from tsfmscope.models.base import Family
    from tsfmscope.series.types import Windows

# Share of the largest number by which states and forecasts may differ from the package's.
CLOSE = 1e-4
# Key of what both checks compare in `Checkpoint.shared`.
COMPARISON = "comparison with the package"
States = dict[Point, np.ndarray]
_ISSUE = "open an issue with the output of this command"


@dataclass(frozen=True, eq=False)
class Comparison:
    """States and forecasts of a model, and those of the package's network with its weights, of the same windows.

    states: point -> ours and the package's, [N, d], without padding. kind: quantiles or logits. forecasts: ours and the
    package's; None where the forecast is sampled.
    """

    states: dict[Point, tuple[np.ndarray, np.ndarray]]
    kind: str
    forecasts: tuple[np.ndarray, np.ndarray] | None

    def state_distances(self) -> dict[Point, float]:
        """Return the largest difference of every layer's states, as a share of the largest state."""
        return {point: distance(theirs, ours) for point, (ours, theirs) in self.states.items()}

    def forecast_distance(self) -> float:
        """Return the largest difference of a window's forecast, as a share of its largest number, or NotApplicable."""
        if self.forecasts is None:
            raise NotApplicable("the forecast is sampled from the last states, which are compared above")
        return max(distance(theirs, ours) for ours, theirs in zip(*self.forecasts, strict=True))


def compare_with_package(model: Family, folder: Path, windows: Windows) -> Comparison:
    """Run a model, and its package's network with the weights of a folder, on the same windows.

    folder: where the model was loaded from, or saved to. Raises NotApplicable if the package is not installed.
    """
    package = model.package
    assert package is not None
    network, tokens = load_package_network(model, folder), model.tokenize(windows)
    ours = {(layer.stack, layer.layer, layer.normed): layer.states for layer in model.hidden_states(tokens)}
    with _captured(network.get_submodule(package.inner), model, tokens) as theirs:
        forecast = _run(network, model, windows, tokens)
    counted = {stack: kinds != TokenKind.PADDING for stack, kinds in tokens.kinds.items()}
    states = {
        point: (values[counted[point[0]]], _aligned(theirs, point, values, package)[counted[point[0]]])
        for point, values in ours.items()
    }
    if forecast.logits is not None:
        logits = np.concatenate(list(model.forecast_logits(tokens)))
        return Comparison(states, "logits", (logits, forecast.logits))
    if forecast.quantiles is not None and isinstance(model, Forecaster):
        # The package's levels need not include the median, which the public method demands.
        values = model._forecast(windows, forecast.levels, 1, [0] * len(windows))
        return Comparison(states, "quantiles", (values, forecast.quantiles))
    return Comparison(states, "", None)


def load_package_network(model: Family, folder: Path) -> Any:
    """Return the package's network of a folder. Raises NotApplicable if the package is not installed."""
    package = model.package
    assert package is not None and package.network is not None
    module, _, name = package.network.partition(":")
    try:
        network_class = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        raise NotApplicable(f"{package.name} is not installed here ({error}); install it to compare") from error
    # Some print what they do, where `verify --json` prints one document.
    with redirect_stdout(io.StringIO()):
        return model.read_package_network(network_class, folder).eval()


def states_are_those_of_the_package(checkpoint: Checkpoint) -> str:
    """The package's own run over the same windows has the same states in every layer, to 1e-4 of the largest."""
    distances = _compared(checkpoint).state_distances()
    for (stack, layer, normed), difference in distances.items():
        place = f"{stack} layer {layer}{' after the norm' if normed else ''}"
        demand(difference <= CLOSE, f"{place}: states differ by {difference:.1e} of the largest; {_ISSUE}")
    worst = max(distances.values())
    return f"{_package(checkpoint).name}: {len(distances)} layers differ by at most {worst:.1e} of the largest state"


def forecasts_are_those_of_the_package(checkpoint: Checkpoint) -> str:
    """The package's own forecasts of the same windows have the same quantiles or logits, to 1e-4 of the largest."""
    compared = _compared(checkpoint)
    difference = compared.forecast_distance()
    demand(difference <= CLOSE, f"{compared.kind} differ by {difference:.1e} of the largest; {_ISSUE}")
    return f"{_package(checkpoint).name}: {compared.kind} differ by {difference:.1e} of the largest"


def _package(checkpoint: Checkpoint) -> Package:
    """Return the family's package. Raises NotApplicable where there is none to compare with."""
    package = family_class(checkpoint.family).package
    if package is None or package.network is None:
        reason = (
            f"{package.name} has the network, but no forecast of this family"
            if package is not None and package.has_our_network
            else "its network is this project's own"
        )
        raise NotApplicable(f"no package here to compare with: {reason}")
    if (checkpoint.folder / COMPRESSED).is_file():
        raise NotApplicable(
            f"no package reads compressed weights; `tsfmscope export --dense` writes what {package.name} reads"
        )
    return package


def _compared(checkpoint: Checkpoint) -> Comparison:
    """Return the comparison on windows without gaps, whose forecast is one forward pass; computed once."""
    package = _package(checkpoint)
    if COMPARISON not in checkpoint.shared:
        subject = checkpoint.subject
        longest = getattr(subject.model, "max_context", None)
        steps = longest if package.wants_all_steps else min(checkpoint.context, longest or checkpoint.context)
        windows = subject.windows(count=3, context=steps)
        graph = subject.model.forecast_graph() if isinstance(subject.model, Forecaster) else None
        furthest = graph.horizon if graph else getattr(subject.model, "prediction_length", windows.horizon)
        windows = replace(windows, future=windows.future[:, :furthest])
        checkpoint.shared[COMPARISON] = compare_with_package(subject.model, checkpoint.folder, windows)
    result: Comparison = checkpoint.shared[COMPARISON]
    return result


def _run(network: Any, model: Family, windows: Windows, tokens: Tokens) -> PackageForecast:
    import torch

    with warnings.catch_warnings(), torch.no_grad(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")
        return model.forecast_with_package(network, windows, tokens)


@contextmanager
def _captured(network: Any, model: Family, tokens: Tokens) -> Iterator[States]:
    """Collect the states of the package's modules that have the names of ours, from the first call of each."""
    names = {id(module): name for name, module in model.network.named_modules()}
    states: States = {}

    def find(ours: Any) -> Any:
        return network.get_submodule(names[id(ours)])

    def keep(point: Point, tensor: Any) -> Any:
        states.setdefault(point, tensor.float().cpu().numpy().copy())
        return tensor

    stacks = {
        name: Stack([find(block) for block in ours.blocks], None if ours.norm is None else find(ours.norm))
        for name, ours in model._pass(tokens).stacks.items()
    }
    inputs, outputs, _ = points(stacks)
    with capture(outputs, inputs, keep):
        yield states


def _aligned(package_states: States, key: Point, ours: np.ndarray, package: Package) -> np.ndarray:
    """Return the package's states of our rows.

    It may pad on the left, or add rows that predict on the right.
    """
    demand(key in package_states, f"{key[0]} layer {key[1]}: the package ran no such module")
    states = package_states[key]
    if package.rows_first:
        states = states.swapaxes(0, 1)
    if states.size == ours.size:
        return states.reshape(ours.shape)
    states = states.reshape(-1, *states.shape[-2:])
    rows = ours.shape[1]
    return states[:, :rows] if package.first_rows else states[:, -rows:]
