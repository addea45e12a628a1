"""Check of time order: the last step is read, and a stack's rows follow the steps that they read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from tsfmscope.conformance.subject import Subject, states_of, windows_of
from tsfmscope.conformance.verdict import SAME, demand, distance
from tsfmscope.models.types import TokenKind
from tsfmscope.series.types import Windows

# Largest number of windows in one pass, besides the unchanged one.
MOST_SWAPS = 48
# Value that is swapped with others of at most 1, so that no scale or vocabulary makes them equal.
OUTLIER = 4.0


def rows_are_in_time_order(subject: Subject) -> str:
    """Another last step changes states; rows of kind OBSERVATION have the order of their steps (`in_time_order`)."""
    _last_step_changes_states(subject)
    model = subject.of_series
    if not model.in_time_order:
        return "the last step is read; the class declares rows in another order than time"
    windows, swapped = _swaps(subject)
    tokens, results, middle = model.tokenize(windows), [], windows.context.shape[1] // 2
    layers = [layer for layer in model.hidden_states(tokens) if layer.layer == 0]
    for layer in layers:
        kinds = tokens.kinds[layer.stack]
        observed = np.flatnonzero((kinds == TokenKind.OBSERVATION).all(axis=0))
        if len(observed) < 2:
            continue
        states = layer.states[:, observed].astype(np.float64)
        is_changed = np.abs(states[1:] - states[0]).max(axis=2) > SAME * np.abs(states[0]).max()  # [swap, row]
        early, late = is_changed[swapped < middle], is_changed[swapped > middle]
        _demand_order(f"{layer.stack} layer 0", early, late, lagged=model.lagged)
        results.append(f"{layer.stack}: {len(observed)} rows in order")
    return "the last step is read; " + (", ".join(results) or "no stack has two rows of kind OBSERVATION")


def _last_step_changes_states(subject: Subject) -> None:
    model, windows = subject.of_series, subject.windows()
    after = states_of(model, model.tokenize(with_other_last_step(windows)))
    difference = max(distance(after[key], states) for key, states in subject.states.items())
    demand(difference > SAME, "no state changes with the last step of the context")


def with_other_last_step(windows: Windows) -> Windows:
    """Return the windows with their last step moved by three standard deviations of their context."""
    context = windows.context.copy()
    context[:, -1] += 3 * context.std(axis=1)
    return replace(windows, context=context)


def _demand_order(location: str, early: np.ndarray, late: np.ndarray, *, lagged: bool) -> None:
    """Raise Failed unless rows follow time.

    early, late [swap, row]: which rows a swap with the middle step changes. lagged: later rows read a step
    again, so the last row that it changes carries no information.
    """
    rows = early.shape[1]
    demand(
        bool(late[-1, -1]),
        f"{location}: the last step changes rows {np.flatnonzero(late[-1]).tolist()}, expected the last of {rows} "
        "rows; are rows in another order than time, or is the step not read?",
    )
    # Rows of the middle step change in every swap: without them the rows of the other step are
    # left.
    middle = np.concatenate((early, late)).all(axis=0)
    first = [int(np.flatnonzero(is_changed)[0]) for is_changed in _rows_of_others(early, middle)]
    last = [int(np.flatnonzero(is_changed)[-1]) for is_changed in _rows_of_others(late, middle)]
    changed = first if lagged else [*first, *last]
    demand(
        changed == sorted(changed) and changed[0] < rows - 1,
        f"{location}: ascending steps change rows {changed}, expected ascending rows",
    )


def _rows_of_others(changes: np.ndarray, middle: Any) -> Iterator[np.ndarray]:
    """Yield the rows that each swap changes besides those of the middle step.

    Where there are no others, the rows of the middle step are yielded.
    """
    for is_changed in changes:
        if is_changed.any():
            yield is_changed & ~middle if (is_changed & ~middle).any() else is_changed


def _swaps(subject: Subject) -> tuple[Windows, np.ndarray]:
    """Return a window with copies in which the middle step and another one are swapped; return the others.

    The second array contains the other steps, ascending. A swap keeps mean and spread of the window, so a
    scale that is read from them stays the same.
    """
    steps = _steps_that_are_read(subject)
    windows = subject.windows(1, context=steps)
    base = windows.context[0] / np.abs(windows.context).max()
    middle = steps // 2
    base[middle] = OUTLIER
    others = np.unique(np.linspace(0, steps - 1, MOST_SWAPS).astype(np.int64))
    others = others[others != middle]
    contexts = np.repeat(base[None], len(others) + 1, axis=0)
    for row, other in enumerate(others, start=1):
        contexts[row, [middle, other]] = base[[other, middle]]
    return windows_of(contexts, np.repeat(windows.future, len(contexts), axis=0)), others


def _steps_that_are_read(subject: Subject) -> int:
    """Return the context length, halved as long as half of it gives as many rows.

    A model cuts a longer context on the left.
    """
    model, steps = subject.model, subject.context
    while steps >= 32 and model.rows_per_window(steps, subject.horizon) == model.rows_per_window(
        steps // 2, subject.horizon
    ):
        steps //= 2
    return steps
