"""Counts of models, checkpoints and families on the pages that a reader sees first are those of the repository."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator

import numpy as np
import pandas as pd
import pytest

from docs.building.made import PYTHON
from stages.config.params import Params, load
from tests.docs.blocks import ROOT
from tsfmscope.compression.options import METHODS
from tsfmscope.models import registry
from tsfmscope.models.base import Forecaster

PAGES = (
    "README.md", "tsfmscope/checkpoints/README.md", "docs/index.md", "docs/tutorial.md", "docs/own_study.md",
    "docs/install.md",
    "docs/reading.md", "docs/faq.md", "docs/cli.md",
)  # fmt: skip
WORDS = (
    *("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen"),
    *("fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"),
)
COUNT = re.compile(
    rf"\b(?P<number>{'|'.join(WORDS)}|\d+) (?:small |other |released |committed |forecasting )*"
    r"(?P<noun>models|checkpoints|families|forecasters)\b"
)
# A row for each layer that was cut.
CUT = ROOT / "docs" / "results" / "cutting" / "bundled.csv"
SIZE = re.compile(r"(?:wheel|checkpoints)[^.|]*\b\d+ MB")


def params_of(profile: str) -> Params:
    return load(ROOT / "params" / f"{profile}.yaml" if profile != "default" else ROOT / "params.yaml")


def forecasters(profile: str) -> int:
    """Return the number of time-series models of a profile that are not derived from another one."""
    params = params_of(profile)
    own = [model for model in params.models.values() if model.base_model is None and not model.is_snapshot]
    return sum(registry.family_class(model.family).modality == "series" for model in own)


def facts() -> dict[tuple[str, str], set[int]]:
    """Return (page, noun) -> the numbers that the page may state."""
    default, full, smoke = params_of("default"), params_of("full"), params_of("smoke")
    population = params_of("population").population
    assert population is not None
    trained = len(population.families)
    originals = sum(model.base_model is None for model in default.models.values())
    classes = [registry.family_class(name) for name in registry.FAMILIES]
    onnx = [
        one for one in classes if issubclass(one, Forecaster) and one.forecast_graph is not Forecaster.forecast_graph
    ]
    return {
        ("README.md", "models"): {len(default.expand("isotropy", "models")), forecasters("full")},
        ("README.md", "families"): {trained, len(onnx), len(set(pd.read_csv(CUT).family))},
        ("README.md", "forecasters"): {forecasters("default")},
        ("docs/index.md", "models"): {len(default.expand("isotropy", "models")), forecasters("full")},
        ("docs/index.md", "families"): {trained},
        ("docs/tutorial.md", "models"): {
            len(default.models), originals, len(smoke.models), sum(m.base_model is None for m in smoke.models.values()),
        },
        ("docs/own_study.md", "models"): {
            sum(model.base_model is None for model in full.models.values()),
            sum(m.base_model is None for m in smoke.models.values()),
        },
        # A test of a correlation that needs five models or more has 5! orders.
        ("docs/reading.md", "models"): {5, forecasters("default")},
    }  # fmt: skip


def counts(page: str) -> Iterator[tuple[str, int, str]]:
    """Yield the noun, number and text of every count on a page."""
    for found in COUNT.finditer((ROOT / page).read_text("utf-8")):
        number = found["number"]
        yield found["noun"], int(number) if number.isdecimal() else WORDS.index(number) + 2, found[0]


@pytest.fixture(scope="module")
def known() -> dict[tuple[str, str], set[int]]:
    return facts()


@pytest.mark.parametrize("page", PAGES)
def test_every_count_of_a_page_is_that_of_the_repository(page: str, known: dict[tuple[str, str], set[int]]) -> None:
    for noun, number, text in counts(page):
        allowed = known.get((page, noun), set())
        assert number in allowed, f"{page}: {text!r}, expected {sorted(allowed) or 'no count'}; correct or remove it"


@pytest.mark.parametrize("page", PAGES)
def test_no_page_states_the_size_of_the_wheel(page: str) -> None:
    assert not SIZE.search((ROOT / page).read_text("utf-8"))


def test_the_pages_on_rank_agree_on_how_many_models_grow() -> None:
    rows = pd.read_csv(ROOT / "docs" / "results" / "flow" / "default.csv")
    grow = {
        epsilon: sum(
            np.polyfit(one.depth, one.share, 1)[0] > 0 for _, one in rows[rows.epsilon == epsilon].groupby("model")
        )
        for epsilon in (0.01, 0.1)
    }
    assert rows.model.nunique() == 16 and list(grow.values()) == [14, 9]
    text = (ROOT / "docs/reading.md").read_text("utf-8")
    assert "of sixteen small models is above 0 in 14 at a tolerance of 10⁻² and in 9 at 10⁻¹" in text


def test_a_stale_count_is_found() -> None:
    found = COUNT.search("The repository contains twenty small checkpoints.")
    assert found is not None and (found["number"], found["noun"]) == ("twenty", "checkpoints")
    assert SIZE.search("The wheel contains the code and the small checkpoints (24 MB in all)")


@pytest.mark.parametrize(
    ("page", "names"), [("cli", METHODS), ("compression", METHODS), ("own_model", registry.FAMILIES)]
)
def test_a_page_names_every_method_or_family(page: str, names: dict[str, object]) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text()
    assert not [name for name in names if name not in text]


@pytest.mark.parametrize("module", [f"{package}.{name}" for _, names, package in PYTHON.values() for name in names])
def test_every_module_of_the_reference_exists(module: str) -> None:
    assert importlib.util.find_spec(module) is not None
