"""Checks that a forecast depends on the unit and the values of the context and on every block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tsfmscope.conformance.errors import NotApplicable
from tsfmscope.conformance.matrices import blocks_of
from tsfmscope.conformance.order import with_other_last_step
from tsfmscope.conformance.subject import States, Subject, add_noise, states_of
from tsfmscope.conformance.verdict import SAME, demand, distance
from tsfmscope.models.base import Family, Forecaster
from tsfmscope.series.types import Windows

# Factor and offset: exact in float32 for values in GRID.
CHANGES = {"scale": (4.0, 0.0), "shift": (1.0, 64.0)}
# Values are multiples of 1 / GRID.
GRID = 64
# Share of the largest forecast: allows for rounding and for the smallest scale that some models
# divide by.
EXACT = 1e-3
# Factor on a context. Its forecast must grow by at least a tenth of the factor, whatever is
# declared.
LARGER = 1000.0
# Noise on the weights of a block, relative to their size.
REWRITTEN = 1.0
SEED, SAMPLES = 3, 4


def forecasts_keep_the_unit_of_the_series(subject: Subject) -> str:
    """A context that is scaled or shifted has its forecast scaled or shifted alike, as `equivariant` declares."""
    model, windows = subject.forecaster, subject.windows()
    windows = replace(windows, context=np.round(windows.context * GRID) / GRID)
    strange = model.equivariant - set(CHANGES)
    demand(not strange, f"equivariant: got {sorted(strange)}, expected some of {sorted(CHANGES)}")
    before = _forecast(model, windows)
    for name in sorted(model.equivariant):
        factor, offset = CHANGES[name]
        actual = _forecast(model, replace(windows, context=windows.context * factor + offset))
        expected = before * factor + offset
        difference = np.abs(actual - expected).max(axis=(1, 2)) / np.abs(before * factor).max()
        # A value at the edge of a bin may get another token, so one window may differ.
        demand(
            float(np.median(difference)) <= EXACT,
            f"a context times {factor:g} plus {offset:g} has another forecast than the old one times {factor:g} plus "
            f"{offset:g}: differ by {np.median(difference):.1e} of the largest. Is it scaled and shifted back? A "
            f"family whose forecast cannot follow leaves {name!r} out of `equivariant`",
        )
    grown = np.abs(_forecast(model, replace(windows, context=windows.context * LARGER))).max() / np.abs(before).max()
    demand(grown >= LARGER / 10, f"a context times {LARGER:g} has a forecast only {grown:.1e} times as large")
    return f"{', '.join(sorted(model.equivariant)) or 'neither scale nor shift is declared'}; grows {grown:.0f} times"


def forecasts_depend_on_the_context(subject: Subject) -> str:
    """Under one seed, windows with another context, or another last step alone, have other forecasts."""
    model, windows = subject.forecaster, subject.windows()
    values = _forecast(model, windows)
    same = [(a, b) for a in range(len(values)) for b in range(a) if np.array_equal(values[a], values[b])]
    demand(not same, f"windows {same} have equal forecasts under one seed; is the context read?")
    after = _forecast(model, with_other_last_step(windows))
    changed = int((np.abs(after - values).max(axis=(1, 2)) > 0).sum())
    demand(changed > len(windows) // 2, f"another last step changes {changed} of {len(windows)} forecasts")
    return f"{len(values)} windows differ, {changed} by their last step"


def every_block_changes_states_and_forecasts(subject: Subject) -> str:
    """Other weights of a block change its own states and the forecast, and no state before the block."""
    model = subject.perturbed_model
    windows, count = subject.windows(2), 0
    tokens = model.tokenize(windows)
    states = states_of(model, tokens)
    forecast = _forecast(model, windows) if isinstance(model, Forecaster) else None
    for (stack, layer), block in blocks_of(model, subject).items():
        if layer not in (1, model.layers[stack]) or not any(True for _ in block.parameters()):
            # Another check shows that states flow through all blocks: the first and the last are
            # enough.
            continue
        saved_weights = {name: part.detach().clone() for name, part in block.state_dict().items()}
        add_noise(block, REWRITTEN, seed=layer)
        changed = list(_changed_layers(states_of(model, tokens), states))
        after = _forecast(model, windows) if isinstance(model, Forecaster) else None
        block.load_state_dict(saved_weights)
        change = f"other weights in {stack} block {layer}"
        demand((stack, layer, False) in changed, f"{change} do not change its states")
        early = [key for key in changed if key[0] == stack and key[1] < layer]
        demand(not early, f"{change} change the states {early}, which come before it")
        if forecast is not None and after is not None:
            demand(bool((np.abs(after - forecast) > 0).any()), f"{change} do not change the forecast")
        count += 1
    if not count:
        raise NotApplicable("no block has parameters")
    return f"{count} blocks, the first and the last of each stack"


def _changed_layers(after: States, before: States) -> Iterator[tuple[str, int, bool]]:
    return (key for key, states in before.items() if distance(after[key], states) > SAME)


def _forecast(model: Family, windows: Windows) -> np.ndarray:
    """Return the forecast of every window under the same seed, in float64."""
    assert isinstance(model, Forecaster)
    return model.forecast(windows, seeds=[SEED] * len(windows), samples=SAMPLES).values.astype(np.float64)
