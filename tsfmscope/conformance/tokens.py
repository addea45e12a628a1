"""Checks of tokens: kinds, rows, padding, missing values, and the future, which must not leak."""

from __future__ import annotations

from dataclasses import replace

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
from tsfmscope.models.types import TokenKind, Tokens, tokens_from_table, tokens_to_table
from tsfmscope.series.types import Windows

VALUED = (TokenKind.OBSERVATION, TokenKind.FUTURE)
# Added to the future where that must change nothing.
OTHER_FUTURE = 37.0


def kinds_cover_windows(subject: Subject) -> str:
    """Every row of every stack of every window has a TokenKind, and some stand for values."""
    tokens, windows = subject.tokens, len(subject.windows())
    demand(set(tokens.kinds) == set(subject.model.stacks), f"got {set(tokens.kinds)}, expected the stacks of the class")
    for stack, kinds in tokens.kinds.items():
        demand(kinds.ndim == 2 and len(kinds) == windows, f"{stack}: got {kinds.shape}, expected {windows} windows")
        strange = sorted(set(np.unique(kinds).tolist()) - {int(kind) for kind in TokenKind})
        demand(not strange, f"{stack}: got kinds {strange}, expected TokenKind")
        types = tokens.types.get(stack)
        demand(types is None or types.shape == kinds.shape, f"{stack}: types have another shape than kinds")
    for name, values in tokens.arrays.items():
        demand(len(values) == windows, f"array {name}: got {len(values)} rows, expected one per window, {windows}")
        demand(values.dtype.kind in "biuf", f"array {name}: got {values.dtype}, expected numbers")
    demand(list(tokens.series) == subject.windows().series, "series of the tokens are not those of the windows")
    valued = sum(int(np.isin(kinds, VALUED).sum()) for kinds in tokens.kinds.values())
    demand(valued > 0, "no token stands for a value (OBSERVATION or FUTURE)")
    return ", ".join(f"{stack}: {kinds.shape[1]} rows per window" for stack, kinds in tokens.kinds.items())


def rows_are_as_promised(subject: Subject) -> str:
    """A full window has as many rows that stand for values as `rows_per_window` returns, at any context."""
    model = subject.model
    contexts = [subject.context]
    if model.modality == "series":
        contexts = [5, subject.context // 2, subject.context, subject.context * 5 // 4]
    for context in contexts:
        windows = subject.windows(context=context)
        tokens, promised = model.tokenize(windows), model.rows_per_window(windows.context.shape[1], windows.horizon)
        demand(set(promised) == set(model.stacks), f"got {set(promised)}, expected the stacks of the class")
        for stack, rows in promised.items():
            actual = set(np.isin(tokens.kinds[stack], VALUED).sum(axis=1).tolist())
            demand(actual == {rows}, f"{stack}, context {context}: got {sorted(actual)} rows, promised {rows}")
    return f"contexts {contexts}"


def tokens_go_through_a_table(subject: Subject) -> str:
    """Tokens that were written to a table and read back give the same states, bit for bit."""
    back = tokens_from_table(tokens_to_table(subject.tokens))
    same_bits(states_of(subject.model, back), subject.states, "states after a table")
    return f"{len(subject.tokens.arrays)} arrays"


def padding_changes_nothing(subject: Subject) -> str:
    """A context padded on the left with NaN has the same states in a batch as alone."""
    model, half = subject.of_series, subject.context // 2
    short, full = subject.windows(context=half), subject.windows(count=3, seed=1)
    padded_context = np.pad(short.context, ((0, 0), (subject.context - half, 0)), constant_values=np.nan)
    mixed = windows_of(np.concatenate((padded_context, full.context)), np.concatenate((short.future, full.future)))
    alone, padded_tokens = model.tokenize(short), model.tokenize(mixed)
    worst = 0.0
    after = states_of(model, padded_tokens)
    for key, states in states_of(model, alone).items():
        difference = distance(after[key][: len(short), -states.shape[1] :], states)
        expected = f"expected at most {ROUNDING:.0e}"
        demand(difference <= ROUNDING, f"{key}: states differ by {difference:.1e} of the largest, {expected}")
        worst = max(worst, difference)
    for stack, kinds in alone.kinds.items():
        padded_kinds = padded_tokens.kinds[stack][: len(short)]
        is_kept = np.array_equal(padded_kinds[:, -kinds.shape[1] :], kinds)
        demand(is_kept, f"{stack}: a padded window's last kinds are others")
        left = padded_kinds[:, : -kinds.shape[1]]
        demand(bool((left == TokenKind.PADDING).all()), f"{stack}: rows of padding alone are not of kind PADDING")
    for stack, rows in model.rows_per_window(half, subject.horizon).items():
        # With as many rows, the model reads no more steps of the longer context.
        fewer = rows < model.rows_per_window(subject.context, subject.horizon)[stack]
        padding = (padded_tokens.kinds[stack][: len(short)] == TokenKind.PADDING).any(axis=1)
        demand(not fewer or bool(padding.all()), f"{stack}: no row of a half-empty window is of kind PADDING")
    return f"differ by {worst:.1e} of the largest state"


def missing_steps_are_no_observation(subject: Subject) -> str:
    """A window of missing steps alone has no OBSERVATION row, and a gap adds none to any window."""
    windows = subject.windows(count=3)
    context = windows.context.copy()
    context[0] = np.nan
    gap = slice(context.shape[1] // 4, context.shape[1] * 3 // 4)
    context[1, gap] = np.nan
    tokens = subject.of_series.tokenize(replace(windows, context=context))
    complete = subject.model.tokenize(windows)
    results = []
    for stack, kinds in tokens.kinds.items():
        nothing, gapped, full = (kinds == TokenKind.OBSERVATION).sum(axis=1).tolist()
        before = int((complete.kinds[stack][1] == TokenKind.OBSERVATION).sum())
        demand(nothing == 0, f"{stack}: {nothing} rows of an all-missing window are of kind OBSERVATION")
        demand(gapped <= before, f"{stack}: {gapped} observed rows with a gap, {before} without")
        if full:
            results.append(f"{stack}: {nothing} of {full} rows")
    return "all missing: " + ", ".join(results)


def the_future_changes_no_state_before_it(subject: Subject) -> str:
    """Other future values change no token and no state of a row that is not of kind FUTURE."""
    windows = subject.windows()
    if subject.model.modality in ("image", "table"):
        raise NotApplicable(f"an item of modality {subject.model.modality} is whole: its future is its last value")
    changed = subject.model.tokenize(_later(windows, subject.model.modality))
    after, rows = states_of(subject.model, changed), 0
    for stack, kinds in subject.tokens.kinds.items():
        is_before = _before(subject.tokens, stack)
        is_same = np.array_equal(changed.kinds[stack][is_before], kinds[is_before])
        demand(is_same, f"{stack}: kinds depend on the future")
        rows += int(is_before.sum())
    for key, states in subject.states.items():
        is_before = _before(subject.tokens, key[0])
        difference = distance(after[key][is_before], states[is_before])
        leak = f"by {difference:.1e} of the largest state"
        demand(difference <= ROUNDING, f"{key}: the future leaks into earlier rows, {leak}")
    return f"{rows} rows before the future"


def the_future_changes_no_forecast(subject: Subject) -> str:
    """A forecast is the same bit for bit for any future of the window."""
    model, windows = subject.forecaster, subject.windows()
    seeds, unknown = list(range(len(windows))), replace(windows, future=np.full_like(windows.future, np.nan))
    for label, future in (("other", _later(windows, "series")), ("unknown", unknown)):
        actual = {label: model.forecast(future, seeds=seeds).values}
        same_bits(actual, {label: model.forecast(windows, seeds=seeds).values}, "the future leaks into a forecast")
    return "of another and of an unknown future"


def _later(windows: Windows, modality: str) -> Windows:
    """Return the same contexts with another future, which is bytes of text for a family of text."""
    if modality == "text":
        return replace(windows, future=np.float32(32) + (windows.future - 32 + OTHER_FUTURE) % 95)
    return replace(windows, future=windows.future[::-1] + np.float32(OTHER_FUTURE))


def _before(tokens: Tokens, stack: str) -> np.ndarray:
    return np.asarray(tokens.kinds[stack] != TokenKind.FUTURE)
