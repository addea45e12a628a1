"""The colours of lines and points stand out from the page, light and dark, and from each other for every eye."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from importlib.resources import files

import numpy as np
import pandas as pd
import pytest

from tsfmscope.tasks.report.charts.figures import COLOURS, DASHES, SYMBOLS
from tsfmscope.tasks.report.colorscale import GREY
from tsfmscope.tasks.report.page.page import order_models
from tsfmscope.tasks.report.tables import ReportTables

CSS = files("tsfmscope.tasks.report.page").joinpath("page.css").read_text("utf-8")
# Machado, Oliveira and Fernandes 2009, Table 1, severity 1, for linear RGB
EYES = {
    "all cones": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
WHITE = np.array([0.95047, 1.0, 1.08883])


def linear(colour: str) -> np.ndarray:
    c = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def contrast(a: str, b: str) -> float:
    """WCAG 2: relative luminances, 1 to 21."""
    low, high = sorted(float(linear(one) @ [0.2126, 0.7152, 0.0722]) for one in (a, b))
    return (high + 0.05) / (low + 0.05)


def seen(colour: str, eye: str) -> np.ndarray:
    """CIE L*a*b* as somebody with such eyes sees it."""
    ratio = TO_XYZ @ np.clip(EYES[eye] @ linear(colour), 0, 1) / WHITE
    x, y, z = np.where(ratio > 0.008856, np.cbrt(ratio), 7.787 * ratio + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_contrast_and_distance_are_those_of_the_standards() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)  # WebAIM's example of the least grey
    np.testing.assert_allclose(seen("#ff0000", "all cones"), [53.24, 80.09, 67.20], atol=0.02)
    red, green = (seen(one, "deuteranopia") for one in ("#d55e00", "#8c8c00"))
    assert (
        np.linalg.norm(red - green) < 25 < np.linalg.norm(seen("#d55e00", "all cones") - seen("#8c8c00", "all cones"))
    )


@pytest.mark.parametrize("colour", [*COLOURS, GREY])
def test_a_line_or_point_stands_out_from_light_and_dark(colour: str) -> None:
    backgrounds = re.findall(r"--(?:paper|raised): (#[0-9a-f]{6})", CSS)
    assert len(backgrounds) == 4
    assert min(contrast(colour, one) for one in backgrounds) >= 3  # WCAG 2.1, 1.4.11


@pytest.mark.parametrize("eye", EYES)
def test_colours_differ_for_every_eye(eye: str) -> None:
    def least(colours: tuple[str, ...]) -> float:
        return min(float(np.linalg.norm(seen(a, eye) - seen(b, eye))) for a, b in itertools.combinations(colours, 2))

    assert least(COLOURS[:8]) > 14  # a difference of 2.3 is just seen
    assert least(COLOURS) > 8
    for place, colour in enumerate(COLOURS[:8]):  # those that have one symbol
        assert np.linalg.norm(seen(colour, eye) - seen(COLOURS[place + 8], eye)) > 20, place


def test_no_model_is_told_from_another_by_colour_alone() -> None:
    looks = [(COLOURS[n], SYMBOLS[n % len(SYMBOLS)]) for n in range(len(COLOURS))]
    assert len({symbol for _, symbol in looks[:8]}) == 8
    assert len({DASHES[n % len(DASHES)] for n in range(4)}) == 4
    assert len(set(looks)) == len(COLOURS)


def test_the_models_of_the_main_study_have_the_first_colours(tables: ReportTables) -> None:
    frame = tables.checkpoints.frame
    others = frame.iloc[:1].assign(model="a-base@svd-4"), frame.iloc[:1].assign(model="another")
    checkpoints = replace(tables.checkpoints, frame=pd.concat([*others, frame]))
    named = order_models(replace(tables, checkpoints=checkpoints))
    assert named == [*sorted(frame["model"]), "another", "a-base@svd-4"]
