"""False positives of both nulls of the adjusted cosine ζ′, and what it sees of states of known distribution.

    python -m bench.isotropy_measures [--quick] [--figure FILE]

The first table has the share of layers with p at most 0.05 in each case of CASES: isotropic directions in one
cluster or in several, with equal and unequal norms, and token types with counts and noise like those of real ones.
The second table has IsoScore, d(0.8) divided by the width, and ζ′ minus the mean of each null for the states of
SEEN, as means over draws. All numbers come from `measure_states` with 2 starts of K-means for each K and 39 draws of
each null. The figure shows the second table. The last line is JSON: layers and draws, the largest share of false
positives of each null (worst_permuted, worst_directions), and worst_case, the case of the latter.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tsfmscope.geometry.measures import measure_states
from tsfmscope.geometry.options import IsotropyOptions
from tsfmscope.geometry.spectrum import effective_dimension

# A function that draws the states [N, d] of a layer, and their token types or None.
Case: TypeAlias = Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray | None]]
ROWS, WIDTH = 512, 64
# Layers per case of the first table, and draws of the second.
LAYERS, QUICK_LAYERS, DRAWS, QUICK_DRAWS = 2000, 100, 25, 5
OPTIONS = IsotropyOptions(restarts=2, repeats=0)
LEVEL = 0.05


def gauss(rows: int = ROWS, width: int = WIDTH) -> Case:
    """Return a case of isotropic Gaussian states."""
    return lambda rng: (rng.standard_normal((rows, width)), None)


def directions(draw_norms: Callable[[np.random.Generator], np.ndarray]) -> Case:
    """Return a case of random directions with norms [N, 1] of their own."""

    def draw(rng: np.random.Generator) -> tuple[np.ndarray, None]:
        states = rng.standard_normal((ROWS, WIDTH))
        return states / np.linalg.norm(states, axis=1, keepdims=True) * draw_norms(rng), None

    return draw


def lognormal(spread: float) -> Case:
    """Return a case of random directions whose log norms have this standard deviation."""
    return directions(lambda rng: rng.lognormal(0, spread, (ROWS, 1)))


def student(rng: np.random.Generator) -> tuple[np.ndarray, None]:
    """Draw states from the spherical Student t distribution with 5 degrees of freedom."""
    return rng.standard_normal((ROWS, WIDTH)) / np.sqrt(rng.chisquare(5, (ROWS, 1)) / 5), None


def clusters(rng: np.random.Generator) -> tuple[np.ndarray, None]:
    """Draw 2 to 5 isotropic clusters whose scales differ by a factor of up to 7."""
    k = int(rng.integers(2, 6))
    scales, own = np.exp(rng.uniform(-1, 1, k)), rng.integers(0, k, ROWS)
    centres = 3 * scales.max() * rng.standard_normal((k, WIDTH))
    return centres[own] + scales[own, None] * rng.standard_normal((ROWS, WIDTH)), None


def zipf_types(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw 200 isotropic types with Zipf frequencies; rows of a type are equal."""
    frequencies = 1 / np.arange(1, 201)
    types = rng.choice(200, ROWS, p=frequencies / frequencies.sum())
    return rng.standard_normal((200, WIDTH))[types], types


def noisy_types(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw 60 isotropic types of similar frequency, whose rows differ by noise with a standard deviation of 0.5."""
    types = rng.integers(0, 60, ROWS)
    return rng.standard_normal((60, WIDTH))[types] + 0.5 * rng.standard_normal((ROWS, WIDTH)), types


def noisy_zipf_types(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw 60 isotropic types with Zipf frequencies and noise, so that means of rare types carry more noise."""
    frequencies = 1 / np.arange(1, 61)
    types = rng.choice(60, ROWS, p=frequencies / frequencies.sum())
    return rng.standard_normal((60, WIDTH))[types] + 0.5 * rng.standard_normal((ROWS, WIDTH)), types


def spectrum(eigenvalues: np.ndarray, *, skewed: bool = False) -> Case:
    """Return a case of states with these eigenvalues along random axes; skewed: coordinates are exponential."""

    def draw(rng: np.random.Generator) -> tuple[np.ndarray, None]:
        axes = np.linalg.qr(rng.standard_normal((WIDTH, WIDTH)))[0]
        shape = (ROWS, WIDTH)
        coordinates = rng.exponential(size=shape) - 1 if skewed else rng.standard_normal(shape)
        return coordinates * np.sqrt(eigenvalues) @ axes, None

    return draw


CASES: dict[str, Case] = {
    "Gaussian, 512 × 64": gauss(),
    "Gaussian, 256 × 16": gauss(256, 16),
    "2 to 5 Gaussian clusters": clusters,
    "log-normal norms, s.d. 0.25": lognormal(0.25),
    "log-normal norms, s.d. 0.5": lognormal(0.5),
    "log-normal norms, s.d. 1": lognormal(1.0),
    "Student t, 5 degrees": student,
    "200 types, Zipf counts, equal rows": zipf_types,
    "60 types, noise 0.5": noisy_types,
    "60 types, Zipf counts, noise 0.5": noisy_zipf_types,
}
DECAY = np.arange(1, WIDTH + 1.0)
SEEN: dict[str, Case] = {
    "Gaussian, isotropic": gauss(),
    "isotropic, each direction skewed": spectrum(np.ones(WIDTH), skewed=True),
    "isotropic directions, log-normal norms with s.d. 0.5": lognormal(0.5),
    "isotropic directions, log-normal norms with s.d. 1": lognormal(1.0),
    "Gaussian, coordinates with s.d. 1 to 8": lambda rng: (gauss()(rng)[0] * np.linspace(1, 8, WIDTH), None),
    "Gaussian, eigenvalues 1/j²": spectrum(DECAY**-2),
    "skewed, eigenvalues 1/j²": spectrum(DECAY**-2, skewed=True),
    "Gaussian, one direction holds 99.99 % of the variance": spectrum(np.where(DECAY == 1, 0.9999, 1e-4 / (WIDTH - 1))),
}
# Columns of the second table: head and format.
COLUMNS = {
    "isoscore": ("IsoScore", ".2f"), "dimension_share": ("d(0.8) ÷ width", ".2f"),
    "corrected": ("ζ′ − permuted", ".4f"), "excess": ("ζ′ − directions", ".4f"),
    "permuted": ("outside permuted", ".0%"), "directions": ("outside directions", ".0%"),
}  # fmt: skip
TITLE = f"| {ROWS} states of width {WIDTH} | " + " | ".join(head for head, _ in COLUMNS.values()) + " |"


def measure(case: Case, draws: int) -> dict[str, np.ndarray]:
    """Return for each of COLUMNS the values of all draws."""
    rows = []
    for seed in range(draws):
        states, types = case(np.random.default_rng([7, seed]))
        row = measure_states(states, types, OPTIONS, seed=seed)
        rows.append({
            "isoscore": row["isoscore"],
            "dimension_share": effective_dimension(row["eigenvalues"], 0.8) / states.shape[1],
            "corrected": row["zeta_adjusted_corrected"],
            "excess": row["zeta_adjusted_excess"],
            "permuted": row["zeta_adjusted_p"] <= LEVEL,
            "directions": not row["zeta_adjusted_isotropic"],
        })  # fmt: skip
    return {name: np.array([row[name] for row in rows], dtype=float) for name in COLUMNS}


def render(name: str, means: dict[str, float]) -> str:
    """Return a line of the second table."""
    cells = [format(means[column], form).replace("-", "−").replace("%", " %") for column, (_, form) in COLUMNS.items()]
    return f"| {name} | " + " | ".join(cells) + " |"


def draw_figure(values: dict[str, dict[str, np.ndarray]]) -> Any:
    """Draw the second table: how evenly directions are used, and ζ′ minus the mean of each null."""
    import altair as alt
    import pandas as pd

    from tsfmscope.report import style

    panels = {
        "how evenly directions are used": ("isoscore", "dimension_share"),
        "ζ′ minus the mean of a null (middle 80 % of draws)": ("corrected", "excess"),
    }
    charts = []
    for title, columns in panels.items():
        rows = pd.DataFrame([
            {
                "states": name, "measure": COLUMNS[column][0], "mean": own[column].mean(),
                "low": np.quantile(own[column], 0.1), "high": np.quantile(own[column], 0.9),
            }
            for name, own in values.items()
            for column in columns
        ])  # fmt: skip
        names = [COLUMNS[column][0] for column in columns]
        axis = alt.Axis(labelLimit=0, title=None, labels=not charts, labelPadding=10, ticks=False, domain=False)
        encoding = {
            "y": alt.Y("states:N", sort=list(values), axis=axis),
            "yOffset": alt.YOffset("measure:N", sort=names),
            "color": alt.Color(
                "measure:N", scale=alt.Scale(domain=names, range=style.COLOURS[:2]), legend=alt.Legend(title=None)
            ),
        }
        base = alt.Chart(rows).encode(**encoding)
        bars = base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", title=title), x2="high:Q")
        points = base.mark_point(filled=True, size=55).encode(x="mean:Q")
        charts.append((bars + points).properties(width=230, height=alt.Step(9)))
    return alt.hconcat(*charts, spacing=24).resolve_scale(color="independent")


def main() -> None:
    """Print both tables and the JSON line; write the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="100 layers and 5 draws; about a minute")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="PNG, SVG or PDF to draw the second table to")
    arguments = parser.parse_args()
    layers, draws = (QUICK_LAYERS, QUICK_DRAWS) if arguments.quick else (LAYERS, DRAWS)
    print("| isotropic states | layers | permuted | directions |\n| --- | --- | --- | --- |")
    found = {}
    for name, case in CASES.items():
        shares = {column: float(values.mean()) for column, values in measure(case, layers).items()}
        found[name] = (shares["permuted"], shares["directions"])
        print(f"| {name} | {layers:,} | {shares['permuted']:.3f} | {shares['directions']:.3f} |", flush=True)
    print(f"\n{TITLE}\n| {'--- | ' * (len(COLUMNS) + 1)}".rstrip())
    values = {name: measure(case, draws) for name, case in SEEN.items()}
    for name, own in values.items():
        print(render(name, {column: float(drawn.mean()) for column, drawn in own.items()}), flush=True)
    if arguments.figure:
        from tsfmscope.report.render import image_writers

        image_writers(lambda: draw_figure(values))[arguments.figure.suffix](arguments.figure)
    worst = max(found, key=lambda name: found[name][1])
    print(json.dumps({
        "layers": layers, "draws": draws, "worst_permuted": max(share for share, _ in found.values()),
        "worst_directions": found[worst][1], "worst_case": worst,
    }))  # fmt: skip


if __name__ == "__main__":
    main()
