"""Checks of hidden states: in order of layers and of time, finite, reproducible, independent of other windows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tsfmscope.conformance.subject import (
    ROUNDING,
    NotApplicable,
    Subject,
    demand,
    distance,
    same_bits,
    states_of,
    windows_of,
)
from tsfmscope.models.base import Forecaster
from tsfmscope.models.common.capture import capture, in_batches
from tsfmscope.models.types import TokenKind
from tsfmscope.series.types import Windows

# Found in a key of config.json that counts blocks.
DEPTH = re.compile("layer|depth|block")
# Largest number of windows in one pass, besides the unchanged one.
MOST_SWAPS = 48
# Value that is swapped with others of at most 1, so that no scale or vocabulary makes them equal.
OUTLIER = 4.0


def layers_come_in_order(subject: Subject) -> str:
    """Every layer of every stack comes once, layer 0 first, the normed state last where there is a final norm."""
    model, expected = subject.model, []
    demand(set(model.layers) == set(model.stacks), f"layers of {set(model.layers)}, expected the stacks of the class")
    for stack in model.stacks:
        blocks = model.layers[stack]
        expected += [(stack, layer, False) for layer in range(blocks + 1)]
        expected += [(stack, blocks, True)] * model.final_norm
    actual = list(subject.states)
    demand(actual == expected, f"got {actual}, expected {expected}")
    return ", ".join(f"{stack}: {blocks} blocks" for stack, blocks in model.layers.items())


def layers_are_those_of_the_config(subject: Subject) -> str:
    """The blocks of every stack are as many as a saved config.json states, or a multiple of that."""
    config = json.loads((subject.saved_folder / "config.json").read_text())
    counts = {key: n for key, n in _numbers(config) if DEPTH.search(key) and n > 0}
    if not counts:
        raise NotApplicable("no key of config.json with layer, depth or block in its name holds a number")
    for stack, blocks in subject.model.layers.items():
        is_stated = any(blocks % n == 0 for n in counts.values())
        demand(is_stated, f"{stack}: got {blocks} blocks, config.json states {counts}")
    return f"{dict(subject.model.layers)} of {counts}"


def states_flow_from_block_to_block(subject: Subject) -> str:
    """Each block reads the output of the block before it, and the final norm reads the last."""
    tokens = subject.tokens
    one_pass, width = subject.model._pass(tokens), subject.model.width
    inputs: dict[Any, Any] = {}
    outputs: dict[Any, Any] = {}
    for name, stack in one_pass.stacks.items():
        ends = [*stack.blocks, *([] if stack.norm is None else [stack.norm])]
        inputs |= {("input", name, number): module for number, module in enumerate(ends)}
        outputs |= {("output", name, number): module for number, module in enumerate(stack.blocks, start=1)}
    import torch

    with torch.inference_mode(), capture(outputs, inputs) as captured:
        one_pass.forward(slice(0, min(len(tokens), subject.model.batch)))
    for _, name, number in inputs:
        actual = captured["input", name, number]
        demand(actual.shape[-1] == width, f"{name}: block {number + 1} reads width {actual.shape[-1]}, not {width}")
        if number:
            before = captured["output", name, number].float().cpu().numpy()
            difference = distance(actual.float().cpu().numpy().reshape(before.shape), before)
            demand(difference == 0, f"{name}: what follows block {number} reads something else; is a block left out?")
    return f"{len(outputs)} blocks"


def states_are_finite(subject: Subject) -> str:
    """States and forecasts of constant, zero, missing, huge, tiny and gapped contexts are finite."""
    model = subject.of_series
    for name, context in hard_contexts(subject.context).items():
        windows = windows_of(context[None], np.full((1, subject.horizon), np.nan))
        try:
            states_of(model, model.tokenize(windows))
            if isinstance(model, Forecaster):
                model.forecast(windows, seeds=[0])
        except Exception as error:
            demand(False, f"{name} context: {type(error).__name__}: {error}")
    return ", ".join(hard_contexts(subject.context))


def hard_contexts(steps: int) -> dict[str, np.ndarray]:
    """Return contexts [C] that break careless scaling, by name."""
    rng, ramp = np.random.default_rng(0), np.arange(float(steps))
    return {
        "constant": np.full(steps, 3.0),
        "zero": np.zeros(steps),
        "missing": np.full(steps, np.nan),
        "huge": rng.normal(size=steps) * 1e30,
        "tiny": rng.normal(size=steps) * 1e-30,
        "one step": np.where(ramp == steps - 1, 2.0, np.nan),
        "gapped": np.where(ramp % 3 == 0, np.nan, ramp),
    }


def the_same_input_gives_the_same_bits(subject: Subject) -> str:
    """Equal windows give equal tokens, and equal tokens give equal states, bit for bit."""
    again = subject.model.tokenize(subject.windows())
    for group in ("arrays", "kinds", "types"):
        same_bits(getattr(again, group), getattr(subject.tokens, group), f"tokens' {group}")
    same_bits(states_of(subject.model, subject.tokens), subject.states, "states")
    return f"{len(subject.states)} layers"


def states_do_not_depend_on_the_batch(subject: Subject) -> str:
    """One window at a time gives the states of all at once, to rounding."""
    with in_batches(subject.model, 1):
        alone = states_of(subject.model, subject.tokens)
    return _alike(alone, subject.states)


def a_window_changes_itself_alone(subject: Subject) -> str:
    """Another context of one window changes states of that window, and of no other."""
    windows, at = subject.windows(), 2
    context = windows.context.copy()
    context[at] = subject.windows(seed=5).context[at]
    after = states_of(subject.model, subject.model.tokenize(replace(windows, context=context)))
    others, is_changed = [n for n in range(len(windows)) if n != at], False
    for key, states in subject.states.items():
        difference = distance(after[key][others], states[others])
        demand(difference <= ROUNDING, f"{key}: another window's states change, by {difference:.1e} of the largest")
        is_changed = is_changed or distance(after[key][at], states[at]) > ROUNDING
    demand(is_changed, "no state changes with the context")
    return f"{len(others)} other windows stay"


def chosen_rows_are_those_of_all(subject: Subject) -> str:
    """States of chosen rows alone, as embeddings are stored, are those of the same rows of a whole pass."""
    tokens = subject.tokens
    # Window 0 has no chosen row.
    rows = {stack: np.arange(kinds.shape[1], kinds.size, 3) for stack, kinds in tokens.kinds.items()}
    actual = {
        (layer.stack, layer.layer, layer.normed): layer.states for layer in subject.model.hidden_states(tokens, rows)
    }
    width = subject.model.width
    return _alike(actual, {key: of_all.reshape(-1, width)[rows[key[0]]] for key, of_all in subject.states.items()})


def _alike(actual: dict[Any, np.ndarray], expected: dict[Any, np.ndarray]) -> str:
    demand(list(actual) == list(expected), f"got layers {list(actual)}, expected {list(expected)}")
    difference = {key: distance(actual[key], states) for key, states in expected.items()}
    worst = max(difference, key=lambda key: difference[key])
    expected_most = f"expected at most {ROUNDING:.0e}"
    demand(difference[worst] <= ROUNDING, f"{worst}: differ by {difference[worst]:.1e} of the largest, {expected_most}")
    return f"differ by {difference[worst]:.1e} of the largest state"


def _numbers(config: Any) -> Iterator[tuple[str, int]]:
    """Yield key and value of the whole numbers of a config, including nested ones."""
    for key, value in config.items() if isinstance(config, dict) else ():
        if isinstance(value, dict):
            yield from _numbers(value)
        elif type(value) is int:
            yield key, value


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
        is_changed = np.abs(states[1:] - states[0]).max(axis=2) > ROUNDING * np.abs(states[0]).max()  # [swap, row]
        early, late = is_changed[swapped < middle], is_changed[swapped > middle]
        _demand_order(f"{layer.stack} layer 0", early, late, lagged=model.lagged)
        results.append(f"{layer.stack}: {len(observed)} rows in order")
    return "the last step is read; " + (", ".join(results) or "no stack has two rows of kind OBSERVATION")


def _last_step_changes_states(subject: Subject) -> None:
    model, windows = subject.of_series, subject.windows()
    after = states_of(model, model.tokenize(with_other_last_step(windows)))
    difference = max(distance(after[key], states) for key, states in subject.states.items())
    demand(difference > ROUNDING, "no state changes with the last step of the context")


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
    # Rows of the middle step change in every swap; without them those of the other step remain.
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

    def rows(context: int) -> Mapping[str, int]:
        return model.rows_per_window(context, subject.horizon)

    while steps >= 32 and rows(steps) == rows(steps // 2):
        steps //= 2
    return steps
