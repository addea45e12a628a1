"""The certificate of one table against a second computation of docs/science.md, Non-inferiority, clause by clause."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

import tsfmscope as ts
from tsfmscope.functions.load import Model
from tsfmscope.models.base import Forecaster
from tsfmscope.series.types import Windows

LEVELS = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
STEPS, CONTEXT, HORIZON = 200, 64, 12
# Three windows of twelve steps lie in the last fifth of 200 steps.
ORIGINS = (188, 176, 164)
DELTA = np.log(1.02)


def table(n_series: int) -> pd.DataFrame:
    """Return series of different scales and noise, one column each."""
    rng, steps = np.random.default_rng(n_series), np.arange(STEPS)
    waves = np.sin(2 * np.pi * (steps[:, None] / rng.choice([7, 12, 24], n_series) + rng.random(n_series)))
    values = 3 + waves + rng.uniform(0.05, 0.8, n_series) * rng.normal(size=(STEPS, n_series))
    return pd.DataFrame(values * 10 ** rng.uniform(-1, 3, n_series), columns=[f"shop {n}" for n in range(n_series)])


def disturbed(noise: float, offset: float) -> Model:
    """Return chronos-bolt-mini with noise on its weights, and quantiles that are moved by an offset."""
    model = ts.load("chronos-bolt-mini")
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for weight in model.family.network.parameters():
            if weight.ndim == 2:
                weight += noise * weight.std() * torch.randn(weight.shape, generator=generator)
        model.family.network.output_patch_embedding.output_layer.bias += offset
    model.family.compression = {"method": "noise"}
    return model


def losses_and_coverage(model: Forecaster, frame: pd.DataFrame) -> tuple[np.ndarray, float]:
    """Return the loss [series], summed over windows, steps and levels, and the coverage of the 80 % interval."""
    values = frame.to_numpy()
    total, inside = np.zeros(values.shape[1]), 0
    for origin in ORIGINS:
        context, future = values[origin - CONTEXT : origin].T, values[origin : origin + HORIZON].T
        names = [*frame.columns]
        windows = Windows(context, future, names, np.full(len(names), origin), "shops", "", 1)
        forecast = model.forecast(windows, levels=LEVELS, seeds=[0] * len(names)).values
        for index, level in enumerate(LEVELS):
            less = future - forecast[:, index]
            total += 2 * np.maximum(level * less, (level - 1) * less).sum(axis=1)
        inside += int(((forecast[:, 0] <= future) & (future <= forecast[:, -1])).sum())
    return total, inside / (len(ORIGINS) * HORIZON * values.shape[1])


def by_hash(names: list[str], count: int, seed: int) -> list[list[str]]:
    """Deal names, in the order of their seeded hash, to groups."""
    order = sorted(names, key=lambda name: hashlib.sha256(f"{seed}:{name}".encode()).hexdigest())
    return [order[first::count] for first in range(min(count, len(order)))]


def judge(frame: pd.DataFrame, base: Model, small: Model, seed: int) -> dict[str, Any]:
    """Return what section 12 gives for one table."""
    (of_base, coverage_base), (of_small, coverage_small) = (
        losses_and_coverage(model.family, frame)
        for model in (base, small)  # type: ignore[arg-type]
    )
    pair = {name: np.array([of_base[n], of_small[n]]) for n, name in enumerate(frame.columns)}
    if len(pair) > 200:
        groups = by_hash(sorted(pair), 50, seed)
        pair = {f"group {n + 1}": sum(pair[name] for name in group) for n, group in enumerate(groups)}
    d = np.array([np.log(after / before) for before, after in pair.values()])
    n, mean, sd = len(d), d.mean(), d.std(ddof=1)
    t = mean + stats.t.ppf(0.95, n - 1) * sd / np.sqrt(n)
    bca = stats.bootstrap(
        (d,), np.mean, n_resamples=9999, confidence_level=0.9, method="BCa", rng=np.random.default_rng(99)
    ).confidence_interval.high
    pooled = [sum(pair[name] for name in group) for group in by_hash(sorted(pair), 10 if n >= 50 else 5, seed)]
    largest = max(after / before for before, after in pooled)
    change = coverage_small - coverage_base
    n_values = len(ORIGINS) * HORIZON * frame.shape[1]
    rules = {
        1: max(t, bca) < DELTA, 2: largest <= 1.1, 3: (n_values < 200 or change >= -0.05) and abs(change) < 0.02,
        4: n >= 10,
    }  # fmt: skip
    needed = ((1.645 + 0.842) * sd / DELTA) ** 2
    if all(rules.values()):
        outcome = "certified"
    elif not rules[2] or not rules[3]:
        outcome = "not certified"
    elif not rules[4] or n < needed:
        outcome = "too few tasks"
    else:
        outcome = "not certified"
    return {
        "outcome": outcome, "n": n, "mean": mean, "sd": sd, "t": t, "bca": bca, "largest": largest, "change": change,
        "needed": needed, "n_above": int((d > np.log(1.1)).sum()),
    }  # fmt: skip


@pytest.mark.parametrize(("n_series", "noise", "offset", "outcome"), [
    (12, 0.01, 0.0, "certified"), (60, 0.01, 0.0, "certified"), (203, 0.01, 0.0, "certified"),
    (12, 0.06, 0.0, None), (12, 0.1, 0.0, None), (60, 0.06, 0.0, None), (203, 0.06, 0.0, None),
    (60, 0.3, 0.0, "not certified"), (8, 0.01, 0.0, "too few tasks"), (60, 0.0, 0.2, None),
])  # fmt: skip
def test_one_table_is_judged_as_section_12_says(
    n_series: int, noise: float, offset: float, outcome: str | None
) -> None:
    frame, base, small, seed = table(n_series), ts.load("chronos-bolt-mini"), disturbed(noise, offset), n_series
    found = ts.certify(base, small, frame, context=CONTEXT, horizon=HORIZON, max_series=None, seed=seed)
    expected = judge(frame, base, small, seed)
    certificate = found.certificate
    assert certificate.outcome == expected["outcome"], expected
    assert outcome in (None, certificate.outcome)
    assert certificate.n_units == expected["n"]
    assert certificate.mean == pytest.approx(expected["mean"], abs=1e-6)
    assert certificate.sd == pytest.approx(expected["sd"], rel=1e-3)
    assert certificate.t_limit == pytest.approx(expected["t"], abs=1e-5)
    assert certificate.bootstrap_limit == pytest.approx(expected["bca"], abs=0.05 * expected["sd"] + 1e-6)
    _, largest, fall, change, _ = certificate.conditions
    assert largest.value == pytest.approx(expected["largest"], rel=1e-5)
    assert fall.value == pytest.approx(max(0.0, -expected["change"]) if n_series * 36 >= 200 else 0)
    assert change.value == pytest.approx(abs(expected["change"]))
    assert certificate.needed == max(10, int(np.ceil(expected["needed"])))
    # What is printed with every certificate.
    n_above, n = expected["n_above"], expected["n"]
    assert found.describe_exclusion().startswith(f"{n_above} of {n} {'groups' if n_series > 200 else 'series'} with")
    share = 100 * (1 - 0.05 ** (1 / n))
    assert n_above or f"at most {share:.1f} %" in found.describe_exclusion()
    assert found.describe_scope().startswith("scope: series like those of data[0], and nothing else; ")
    json.dumps(found.facts(), allow_nan=False)


def test_the_fingerprint_is_of_the_values_alone(tmp_path: Path) -> None:
    frame, models = table(10), (ts.load("chronos-bolt-mini"), disturbed(0.01, 0))

    def fingerprint(data: Any) -> str:
        return ts.certify(*models, data, context=CONTEXT, horizon=HORIZON).fingerprint

    first = fingerprint(frame)
    assert len(first) == 64 and first == fingerprint(frame[frame.columns[::-1]].add_prefix("the "))
    changed = frame.copy()
    changed.iloc[0, 0] += 1
    assert fingerprint(changed) != first
