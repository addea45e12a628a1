"""The projection is principal component analysis; its panels hold each token once, in the colour of its cluster."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from sklearn.decomposition import PCA

from tests.tsfmscope.report.recorded import find_study
from tsfmscope.report.charts import islands
from tsfmscope.report.charts.figures import COLOURS
from tsfmscope.report.charts.islands import project
from tsfmscope.report.tables import ReportTables

IDENTITY = {"model": "m", "stack": "encoder", "layer": 1, "dataset": "d", "condition": "c"}
# Number of tokens of the clusters 0 to 6.
SIZES = (2, 7, 3, 9, 3, 1, 5)


def make_tokens(seed: int) -> pd.DataFrame:
    clusters = np.repeat(np.arange(len(SIZES)), SIZES)
    points = np.random.default_rng(seed).normal(size=(len(clusters), 3))
    frame = pd.DataFrame(points, columns=["pc1", "pc2", "pc3"])
    return frame.assign(cluster=clusters, series="s", position=np.arange(len(clusters)))


def read_tokens(figure: go.Figure) -> dict[str, dict[tuple[int, int], tuple[float, float]]]:
    """Return x axis -> (position, cluster) -> coordinates."""
    found: dict[str, dict[tuple[int, int], tuple[float, float]]] = {}
    for trace in (trace for trace in figure.data if trace.customdata is not None):
        for row, x, y in zip(trace.customdata, trace.x, trace.y, strict=True):
            panel = found.setdefault(trace.xaxis, {})
            assert (row[1], row[2]) not in panel
            panel[row[1], row[2]] = (x, y)
    return found


def test_each_token_is_drawn_once_in_both_projections() -> None:
    cells = [(f"title {seed}", make_tokens(seed)) for seed in range(3)]
    drawn = read_tokens(islands.draw_islands(cells))
    assert list(drawn) == ["x", "x2", "x3", "x4", "x5", "x6"]
    for (_, frame), first in zip(cells, (1, 3, 5), strict=True):
        for panel, column in ((first, "pc2"), (first + 1, "pc3")):
            points = drawn[f"x{panel}" if panel > 1 else "x"]
            wanted = zip(frame["pc1"].astype("f4"), frame[column].astype("f4"), strict=True)
            assert points == dict(zip(zip(frame["position"], frame["cluster"], strict=True), wanted, strict=True))


def test_the_axes_name_their_components() -> None:
    layout = islands.draw_islands([("a", make_tokens(0)), ("b", make_tokens(1))]).layout
    for shown in (layout.to_plotly_json(), layout.meta["narrow"]):
        for x, y, second in (("xaxis", "yaxis", 2), ("xaxis2", "yaxis2", 3), ("xaxis4", "yaxis4", 3)):
            assert shown[x]["title"]["text"] == "component 1"
            assert shown[y]["title"]["text"] == f"component {second}"


def test_the_four_largest_clusters_have_a_colour_and_the_rest_is_grey_below_them() -> None:
    figure = islands.draw_islands([("a", make_tokens(0))])
    keys = [trace for trace in figure.data if trace.showlegend is not False]
    styles = {trace.name: (trace.marker.color, trace.marker.symbol) for trace in keys}
    assert list(styles) == ["largest cluster", "second", "third", "fourth", "all others"]
    assert len(set(styles.values())) == 5 and not {colour for colour, _ in styles.values()} & set(COLOURS)
    found = {}
    for trace in (trace for trace in figure.data if trace.customdata is not None and trace.xaxis == "x"):
        assert (trace.marker.color, trace.marker.symbol) == styles[trace.name]
        found[trace.name] = {row[2] for row in trace.customdata}
    # Clusters 2 and 4 are equally large; the smaller number is first.
    assert found == {"all others": {0, 4, 5}, "fourth": {2}, "third": {6}, "second": {1}, "largest cluster": {3}}
    assert next(iter(found)) == "all others"


def test_a_matrix_with_few_clusters_has_no_others(tables: ReportTables) -> None:
    frame = find_study(tables, "islands").answers["islands"].frame
    part = frame[frame["model"] == frame["model"].iloc[0]]
    two = part[part["cluster"].isin(part["cluster"].unique()[:2])]
    names = {trace.name for trace in islands.draw_islands([("a", two)]).data if trace.customdata is not None}
    assert names == {"largest cluster", "second"}


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
    ("states", "explained"),
    [(np.ones((5, 4)), np.nan), (np.arange(8.0).reshape(4, 2), 1.0), (np.ones((1, 4)), np.nan)],
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
