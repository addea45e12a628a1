"""The projection is principal component analysis; its panels hold each token once, in the colour of its cluster."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.decomposition import PCA

from tests.tsfmscope.report.drawn import read_panels, read_scale
from tsfmscope.report.plots import islands
from tsfmscope.report.plots.islands import project
from tsfmscope.report.style import COLOURS

IDENTITY = {"model": "m", "stack": "encoder", "layer": 1, "dataset": "d", "condition": "c"}
# Number of tokens of the clusters 0 to 6.
SIZES = (2, 7, 3, 9, 3, 1, 5)


def make_tokens(seed: int) -> pd.DataFrame:
    clusters = np.repeat(np.arange(len(SIZES)), SIZES)
    points = np.random.default_rng(seed).normal(size=(len(clusters), 3))
    frame = pd.DataFrame(points, columns=["pc1", "pc2", "pc3"])
    return frame.assign(cluster=clusters, series="s", position=np.arange(len(clusters)))


def test_each_token_is_drawn_once_in_both_projections() -> None:
    cells = [(f"title {seed}", make_tokens(seed)) for seed in range(3)]
    drawn = read_panels(islands.draw_islands(cells))
    assert [panel.title for panel in drawn] == ["title 0", "", "title 1", "", "title 2", ""]
    for at, panel in enumerate(drawn):
        layer, (_, frame) = panel.layer("point"), cells[at // 2]
        names = [layer.encoding[axis]["field"] for axis in "xy"]
        assert names == ["pc1", "pc3" if at % 2 else "pc2"]
        assert [layer.encoding[axis]["axis"]["title"] for axis in "xy"] == [islands.COMPONENTS[name] for name in names]
        points = sorted(zip(layer.values("x"), layer.values("y"), strict=True))
        np.testing.assert_allclose(points, sorted(frame[names].itertuples(index=False, name=None)), rtol=1e-6)


def test_the_four_largest_clusters_have_a_colour_and_the_rest_is_grey_below_them() -> None:
    chart = islands.draw_islands([("a", make_tokens(0))])
    colours, symbols = read_scale(chart, "fill"), read_scale(chart, "shape")
    assert list(colours) == list(symbols) == ["largest cluster", "second", "third", "fourth", "all others"]
    assert len({(colours[name], symbols[name]) for name in colours}) == 5 and not {*colours.values()} & {*COLOURS}
    found: dict[str, set[int]] = {}
    for row in read_panels(chart)[0].layer("point").rows:
        found.setdefault(row["kind"], set()).add(int(row["tip"].rpartition(" ")[2]))
    # Clusters 2 and 4 are equally large; the smaller number is first.
    assert found == {"all others": {0, 4, 5}, "fourth": {2}, "third": {6}, "second": {1}, "largest cluster": {3}}
    assert next(iter(found)) == "all others"


def test_the_projection_is_that_of_scikit_learn_up_to_sign() -> None:
    states = np.random.default_rng(0).standard_normal((200, 16)) * np.linspace(3, 0.1, 16)
    ours = project(states, np.zeros(200, dtype=int), ["s"] * 200, np.arange(200), IDENTITY)
    theirs = PCA(3, svd_solver="full").fit(states)
    np.testing.assert_allclose(np.abs(ours[["pc1", "pc2", "pc3"]]), np.abs(theirs.transform(states)), atol=1e-10)
    assert ours["explained"].iloc[0] == pytest.approx(theirs.explained_variance_ratio_.sum())


def test_the_projection_is_free_of_shift_and_does_not_flip() -> None:
    states = np.random.default_rng(1).standard_normal((50, 8)) * np.linspace(3, 1, 8)
    ones, names = np.ones(50, dtype=int), ["s"] * 50
    one, other = (project(s, ones, names, ones, IDENTITY)[["pc1", "pc2", "pc3"]] for s in (states, states + 7))
    np.testing.assert_allclose(one, other, atol=1e-10)


@pytest.mark.parametrize(
    ("states", "explained"), [(np.ones((5, 4)), np.nan), (np.arange(8.0).reshape(4, 2), 1.0), (np.ones((1, 4)), np.nan)]
)
def test_flat_states_leave_zeros(states: np.ndarray, explained: float) -> None:
    count = len(states)
    frame = project(states, np.zeros(count, dtype=int), ["s"] * count, np.arange(count), IDENTITY)
    np.testing.assert_allclose(frame["explained"].iloc[0], explained)
    assert (frame["pc3"] == 0).all()


@pytest.mark.parametrize("states", [np.empty((0, 4)), np.full((3, 4), np.nan)])
def test_states_that_cannot_be_drawn_are_refused(states: np.ndarray) -> None:
    with pytest.raises(ValueError, match="expected at least one row and only finite values"):
        project(
            states, np.zeros(len(states), dtype=int), ["s"] * len(states), np.zeros(len(states), dtype=int), IDENTITY
        )
