"""Comparison of a checkpoint's states and forecasts with those of the family's own package."""

from __future__ import annotations

import importlib
import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tsfmscope.conformance.checkpoint import Checkpoint
from tsfmscope.conformance.errors import NotApplicable
from tsfmscope.conformance.package_forecasts import PACKAGES, Answer, Package
from tsfmscope.conformance.verdict import demand, distance
from tsfmscope.models.base import Forecaster
from tsfmscope.models.common.capture import Point
from tsfmscope.models.common.checkpoint_folder import COMPRESSED
from tsfmscope.models.released import RELEASED
from tsfmscope.models.types import TokenKind, Tokens

if TYPE_CHECKING:
    from tsfmscope.models.base import Family
    from tsfmscope.series.types import Windows

# Share of the largest number by which states and forecasts may differ from the package's.
CLOSE = 1e-4
# Key of what both checks compare in `Checkpoint.shared`.
COMPARISON = "comparison with the package"
States = dict[Point, np.ndarray]
_ISSUE = "open an issue with the output of this command"


def states_are_those_of_the_package(checkpoint: Checkpoint) -> str:
    """The package's own run over the same windows has the same states in every layer, to 1e-4 of the largest."""
    ours, theirs, _ = _compared(checkpoint)
    worst = 0.0
    for key, states in ours.items():
        difference = distance(theirs[key], states)
        stack, layer, normed = key
        place = f"{stack} layer {layer}{' after the norm' if normed else ''}"
        demand(difference <= CLOSE, f"{place}: states differ by {difference:.1e} of the largest; {_ISSUE}")
        worst = max(worst, difference)
    return f"{_package(checkpoint).name}: {len(ours)} layers differ by at most {worst:.1e} of the largest state"


def forecasts_are_those_of_the_package(checkpoint: Checkpoint) -> str:
    """The package's own forecasts of the same windows have the same quantiles or logits, to 1e-4 of the largest."""
    model, (_, _, answer) = checkpoint.subject.model, _compared(checkpoint)
    windows = _windows(checkpoint)
    if answer.logits is not None:
        ours, theirs, kind = (
            np.concatenate(list(model.forecast_logits(model.tokenize(windows)))),
            answer.logits,
            "logits",
        )
    elif answer.quantiles is not None:
        forecast = checkpoint.subject.forecaster.forecast(windows, levels=answer.levels, seeds=[0] * len(windows))
        ours, theirs, kind = forecast.values, answer.quantiles, "quantiles"
    else:
        raise NotApplicable("the forecast is sampled from the last states, which are compared above")
    difference = distance(theirs, ours)
    demand(difference <= CLOSE, f"{kind} differ by {difference:.1e} of the largest; {_ISSUE}")
    return f"{_package(checkpoint).name}: {kind} differ by {difference:.1e} of the largest"


def _package(checkpoint: Checkpoint) -> Package:
    """Return the family's package. Raises NotApplicable where there is none to compare with."""
    package = PACKAGES.get(checkpoint.family)
    if package is None:
        released = RELEASED.get(checkpoint.family)
        reason = (
            f"{released.package} has the network, but no forecast of this family"
            if released is not None and released.package
            else "its network is this project's own"
        )
        raise NotApplicable(f"no package here to compare with: {reason}")
    if (checkpoint.folder / COMPRESSED).is_file():
        raise NotApplicable(
            f"no package reads compressed weights; `tsfmscope export --dense` writes what {package.name} reads"
        )
    return package


def _compared(checkpoint: Checkpoint) -> tuple[States, States, Answer]:
    """Return our states, the package's, and its forecast; computed once per checkpoint."""
    package, model = _package(checkpoint), checkpoint.subject.model
    if COMPARISON not in checkpoint.shared:
        windows = _windows(checkpoint)
        tokens = model.tokenize(windows)
        ours = {(layer.stack, layer.layer, layer.normed): layer.states for layer in model.hidden_states(tokens)}
        loaded = _load(package, checkpoint)
        with _captured(package.inner(loaded), model, tokens) as theirs:
            answer = _run(package, loaded, model, windows, tokens)
        aligned = {key: _aligned(theirs, key, states, package) for key, states in ours.items()}
        checkpoint.shared[COMPARISON] = (*_without_padding(ours, aligned, tokens), answer)
    result: tuple[States, States, Answer] = checkpoint.shared[COMPARISON]
    return result


def _load(package: Package, checkpoint: Checkpoint) -> Any:
    """Return the package's network of the folder. Raises NotApplicable if the package is not installed."""
    module, _, name = package.network_class.partition(":")
    try:
        network_class = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        raise NotApplicable(f"{package.name} is not installed here ({error}); install it to compare") from error
    # Some print what they do, where `verify --json` prints one document.
    with redirect_stdout(io.StringIO()):
        return package.read(network_class, checkpoint.subject.model, checkpoint.folder).eval()


def _run(package: Package, loaded: Any, model: Family, windows: Windows, tokens: Tokens) -> Answer:
    import torch

    with warnings.catch_warnings(), torch.no_grad(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")
        return package.run(loaded, model, windows, tokens)


def _windows(checkpoint: Checkpoint) -> Windows:
    """Return windows without gaps, whose forecast is one forward pass."""
    package, subject = _package(checkpoint), checkpoint.subject
    longest = getattr(subject.model, "max_context", None)
    steps = longest if package.wants_all_steps else min(checkpoint.context, longest or checkpoint.context)
    windows = subject.windows(count=3, context=steps)
    graph = subject.model.forecast_graph() if isinstance(subject.model, Forecaster) else None
    furthest = graph.horizon if graph else getattr(subject.model, "prediction_length", windows.horizon)
    return replace(windows, future=windows.future[:, :furthest])


@contextmanager
def _captured(network: Any, model: Family, tokens: Tokens) -> Iterator[States]:
    """Collect the states of the package's modules that have the names of ours, from the first call of each."""
    import torch

    names = {id(module): name for name, module in model.network.named_modules()}
    states: States = {}
    handles = []

    def keep(key: Point, value: Any) -> None:
        tensor = value if isinstance(value, torch.Tensor) else value[0]
        states.setdefault(key, tensor.detach().float().cpu().numpy().copy())

    def keep_input(key: Point, module: Any, args: Any, keywords: Any) -> None:
        keep(key, args[0] if args else next(iter(keywords.values())))

    def keep_output(key: Point, module: Any, args: Any, output: Any) -> None:
        keep(key, output)

    for stack, ours in model._pass(tokens).stacks.items():
        theirs = [network.get_submodule(names[id(block)]) for block in ours.blocks]
        first = partial(keep_input, (stack, 0, False))
        handles.append(theirs[0].register_forward_pre_hook(first, with_kwargs=True))
        modules = {(stack, layer, False): module for layer, module in enumerate(theirs, start=1)}
        if ours.norm is not None:
            modules[stack, len(theirs), True] = network.get_submodule(names[id(ours.norm)])
        handles += [module.register_forward_hook(partial(keep_output, key)) for key, module in modules.items()]
    try:
        yield states
    finally:
        for handle in handles:
            handle.remove()


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


def _without_padding(ours: States, package_states: States, tokens: Tokens) -> tuple[States, States]:
    """Return both with states of padding left out, [N, d]."""
    counted = {stack: kinds != TokenKind.PADDING for stack, kinds in tokens.kinds.items()}
    ours = {key: values[counted[key[0]]] for key, values in ours.items()}
    return ours, {key: values[counted[key[0]]] for key, values in package_states.items()}
