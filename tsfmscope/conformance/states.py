"""Checks of hidden states: every layer in order, finite, reproducible, and independent of other windows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from tsfmscope.conformance.errors import NotApplicable
from tsfmscope.conformance.subject import Subject, same_bits, states_of, windows_of
from tsfmscope.conformance.verdict import SAME, demand, distance
from tsfmscope.models.base import Forecaster
from tsfmscope.models.common.capture import capture, in_batches

# Found in a key of config.json that counts blocks.
DEPTH = re.compile("layer|depth|block")


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
        demand(
            any(blocks % n == 0 for n in counts.values()), f"{stack}: got {blocks} blocks, config.json states {counts}"
        )
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
        demand(difference <= SAME, f"{key}: another window's states change, by {difference:.1e} of the largest")
        is_changed = is_changed or distance(after[key][at], states[at]) > SAME
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
    demand(
        difference[worst] <= SAME,
        f"{worst}: differ by {difference[worst]:.1e} of the largest, expected at most {SAME:.0e}",
    )
    return f"differ by {difference[worst]:.1e} of the largest state"


def _numbers(config: Any) -> Iterator[tuple[str, int]]:
    """Yield key and value of the whole numbers of a config, including nested ones."""
    for key, value in config.items() if isinstance(config, dict) else ():
        if isinstance(value, dict):
            yield from _numbers(value)
        elif type(value) is int:
            yield key, value
