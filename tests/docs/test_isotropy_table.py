"""The table of what ζ′ minus its null mean sees (docs/science.md), recomputed with the project's functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from tsfmscope.geometry.measures import measure_states
from tsfmscope.geometry.options import IsotropyOptions
from tsfmscope.geometry.spectrum import effective_dimension

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "science.md"
# Conclusions that ζ′ minus its null mean does not allow.
CONCLUDED = re.compile(
    r"(looks?|nearly|these states are|the states are) isotropic|indistinguishable from isotropic|\(0: isotropic|"
    r"0 is more isotropic|nearer to isotropic",
    re.IGNORECASE,
)
TITLE = "| 512 states of width 64 | IsoScore | d(0.8) ÷ width | ζ′ − null | inside the null's central 95 % |"
ROWS, WIDTH = 512, 64
DRAWS = 3


def _gauss(rng: np.random.Generator) -> np.ndarray:
    return rng.standard_normal((ROWS, WIDTH))


def _with_norms(spread: float) -> Callable[[np.random.Generator], np.ndarray]:
    def draw(rng: np.random.Generator) -> np.ndarray:
        rows = _gauss(rng)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True) * rng.lognormal(0, spread, (ROWS, 1))

    return draw


def _with_spectrum(eigenvalues: np.ndarray) -> Callable[[np.random.Generator], np.ndarray]:
    """Return Gaussian states with these eigenvalues along random axes."""

    def draw(rng: np.random.Generator) -> np.ndarray:
        axes = np.linalg.qr(rng.standard_normal((WIDTH, WIDTH)))[0]
        return _gauss(rng) * np.sqrt(eigenvalues) @ axes

    return draw


def _stretched(rng: np.random.Generator) -> np.ndarray:
    return _gauss(rng) * np.linspace(1, 8, WIDTH)


def _skewed(rng: np.random.Generator) -> np.ndarray:
    """Return independent coordinates of equal variance, each with an exponential distribution, along random axes."""
    return (rng.exponential(size=(ROWS, WIDTH)) - 1) @ np.linalg.qr(rng.standard_normal((WIDTH, WIDTH)))[0]


DECAY = np.arange(1, WIDTH + 1.0)
STATES = {
    "Gaussian, isotropic": _gauss,
    "isotropic, each direction skewed": _skewed,
    "isotropic directions, log-normal norms with s.d. 0.5": _with_norms(0.5),
    "isotropic directions, log-normal norms with s.d. 1": _with_norms(1.0),
    "Gaussian, coordinates with s.d. 1 to 8": _stretched,
    "Gaussian, eigenvalues $j^{-2}$": _with_spectrum(DECAY**-2),
    "Gaussian, one direction holds 99.99 % of the variance": _with_spectrum(
        np.where(DECAY == 1, 0.9999, 1e-4 / (WIDTH - 1))
    ),
}


class Line(NamedTuple):
    """Means over draws, and the number of draws inside the null's central 95 %."""

    isoscore: float
    dimension_share: float
    corrected: float
    inside: int


def measure(name: str, draws: int) -> Line:
    """Return the line of the table for one kind of states."""
    values = []
    for seed in range(draws):
        row = measure_states(
            STATES[name](np.random.default_rng([7, seed])), options=IsotropyOptions(repeats=0), seed=seed
        )
        share = effective_dimension(row["eigenvalues"], 0.8) / WIDTH
        values.append((row["isoscore"], share, row["zeta_adjusted_corrected"], row["zeta_adjusted_isotropic"]))
    means = np.array(values, dtype=float).mean(axis=0)
    return Line(*map(float, means[:3]), round(float(means[3]) * draws))


def render(draws: int) -> Iterator[str]:
    """Yield the lines of the table as the page has them."""
    yield TITLE
    yield "| --- | --- | --- | --- | --- |"
    for name in STATES:
        line = measure(name, draws)
        corrected = f"{line.corrected:.4f}".replace("-", "−")
        yield f"| {name} | {line.isoscore:.2f} | {line.dimension_share:.2f} | {corrected} | {line.inside} of {draws} |"


def printed() -> dict[str, Line]:
    """Return the lines of the table of the page."""
    text = PAGE.read_text("utf-8")
    assert TITLE in text, f"{PAGE.name} has no table with the head {TITLE}"
    lines = {}
    for row in text.split(TITLE)[1].split("\n\n")[0].splitlines()[2:]:
        name, *cells = (cell.strip() for cell in row.strip("|").split("|"))
        isoscore, share, corrected = (float(cell.replace("−", "-")) for cell in cells[:3])
        inside, draws = map(int, re.findall(r"\d+", cells[3]))
        lines[name] = Line(isoscore, share, corrected, round(100 * inside / draws))
    return lines


def test_the_page_lists_every_kind_of_states() -> None:
    assert list(printed()) == list(STATES)


@pytest.mark.parametrize("name", STATES)
def test_the_table_of_the_page_is_what_the_functions_give(name: str) -> None:
    on_page, here = printed()[name], measure(name, DRAWS)
    assert here.isoscore == pytest.approx(on_page.isoscore, abs=0.05)
    assert here.dimension_share == pytest.approx(on_page.dimension_share, abs=0.05)
    assert here.corrected == pytest.approx(on_page.corrected, abs=max(0.001, 0.7 * abs(on_page.corrected)))
    if on_page.inside in (0, 100):
        assert here.inside == DRAWS * on_page.inside / 100


def test_the_measure_orders_two_kinds_of_states_against_isoscore() -> None:
    few, many = (
        printed()["Gaussian, eigenvalues $j^{-2}$"],
        printed()["isotropic directions, log-normal norms with s.d. 1"],
    )
    assert few.isoscore < many.isoscore
    assert few.dimension_share < many.dimension_share
    assert few.corrected < many.corrected


def test_no_page_or_text_calls_states_isotropic_by_this_measure() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs/findings").glob("*.md")]
    # docs/tables.md is made from the texts in store.
    pages = [page for page in pages if page.name != "tables.md"]
    code = [path for folder in ("stages", "tasks", "store", "tsfmscope") for path in (ROOT / folder).rglob("*.py")]
    for path in [*pages, *code]:
        found = CONCLUDED.search(path.read_text("utf-8"))
        assert found is None, f"{path.relative_to(ROOT)}: {found[0] if found else ''}"
    assert CONCLUDED.search("within two standard deviations of 0, the states look isotropic")


if __name__ == "__main__":
    print("\n".join(render(10)))
