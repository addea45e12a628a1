"""Hidden states for pictures: which layer, whose components, how many tokens, from dumps as workers write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest

import store
from stages.config.params import Params, Study, load
from stages.planning.report_parts import TOKENS, answer_islands
from store import catalogue, dumps, files
from tests.store.conftest import valid_row

ROOT = Path(__file__).parents[3]
T5, BOLT = "chronos-t5-nano", "chronos-bolt-nano"
STUDY = "isotropy-states"  # of the smoke profile: both models on linear-2 under `noisy`
WIDTH = 5
LAYERS = [  # stack, layer, normed: a stack's last state stands twice, before and after its final norm
    *[("encoder", layer, False) for layer in range(4)], ("encoder", 3, True),
    *[("decoder", layer, False) for layer in range(6)], ("decoder", 5, True),
]  # fmt: skip


def made(place: tuple[str, int, bool], n: int) -> np.ndarray:
    """States [n, 5] in two far groups, even and odd tokens, with another spread in each layer."""
    rng = np.random.default_rng(LAYERS.index(place))
    values = rng.standard_normal((n, WIDTH)) * rng.uniform(0.5, 2, WIDTH)
    values[1::2] += 30
    return values.astype(np.float32)


def table(place: tuple[str, int, bool], n: int) -> pa.Table:
    stack, layer, normed = place
    return pa.table(
        {
            "stack": pa.DictionaryArray.from_arrays(
                pa.array([stack == "decoder"] * n).cast(pa.int8()), pa.array(["encoder", "decoder"])
            ),
            "layer": pa.array([layer] * n, pa.int16()),
            "normed": [normed] * n,
            "token": pa.array(range(n), pa.int64()),
            "series": pa.array([f"s{i % 7}" for i in range(n)]).dictionary_encode(),
            "origin": pa.array([9] * n, pa.int64()),
            "position": pa.array(range(n), pa.int32()),
            "kind": pa.array([0] * n, pa.int8()),
            "type": pa.array([None] * n, pa.int32()),
            "state": pa.FixedSizeListArray.from_arrays(pa.array(made(place, n).ravel()), WIDTH),
        }
    )


def write(tokens: dict[tuple[str, str, str], int]) -> None:
    """Outs of `checkpoints` and `embeddings` under ./data: a dump a (model, data set, condition), of so many tokens."""
    families = {T5: ("chronos-t5", "decoder"), BOLT: ("chronos-bolt", "encoder")}
    rows = []
    for model, dataset, condition in tokens:
        spec = {"model": model, "dataset": dataset, "condition": condition}
        n = tokens[model, dataset, condition]
        facts = dumps.write_dump(
            Path("data/embeddings"), dumps.dump_path(spec | {"format": "arrow"}), (table(place, n) for place in LAYERS)
        )
        rows.append(valid_row("dumps") | spec | facts | {"job_key": "/".join(spec.values())})
        series = Path("data/kernelsynth/series", f"{dataset}.parquet")
        series.parent.mkdir(parents=True, exist_ok=True)
        series.touch()  # only its being there is asked
    files.write_rows(Path("data/embeddings/dumps/00000.parquet"), "dumps", rows)
    models = [
        valid_row("checkpoints") | {"model": model, "family": family, "output_stack": stack}
        for model, (family, stack) in families.items()
    ]
    files.write_rows(Path("data/checkpoints/checkpoints/00000.parquet"), "checkpoints", models)


def asked(*, seed: int = 0, **changes: Any) -> Params:
    """The smoke profile with its study of states changed."""
    params = load(ROOT / "params" / "smoke.yaml")
    study: Study = params.studies[STUDY].model_copy(update=changes)
    return params.model_copy(update={"seed": seed, "studies": params.studies | {STUDY: study}})


@pytest.fixture(autouse=True)
def at_a_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def both() -> None:
    write({(T5, "linear-2", "noisy"): 60, (BOLT, "linear-2", "noisy"): 60})


@pytest.mark.usefixtures("both")
@pytest.mark.parametrize(
    ("which", "model", "place"),
    [
        ("last", T5, ("decoder", 5, True)),
        ("middle", T5, ("decoder", 3, False)),  # half of 5, rounded up
        ("last", BOLT, ("encoder", 3, True)),
        ("middle", BOLT, ("encoder", 2, False)),
    ],
)
def test_points_are_those_of_the_asked_layer_and_the_share_is_that_of_numpys_components(
    which: Literal["middle", "last"], model: str, place: tuple[str, int, bool]
) -> None:
    frame = answer_islands(asked(islands_layer=which), STUDY).frame
    found = frame[frame["model"] == model]
    values = made(place, 60).astype(np.float64)
    variances, axes = np.linalg.eigh(np.cov(values.T))
    points = (values - values.mean(axis=0)) @ axes[:, ::-1][:, :3]
    assert set(zip(found["stack"], found["layer"], strict=True)) == {place[:2]}
    assert found["position"].tolist() == list(range(60))
    np.testing.assert_allclose(np.abs(found[["pc1", "pc2", "pc3"]]), np.abs(points), atol=1e-6)  # a sign is free
    np.testing.assert_allclose(found["explained"], variances[-3:].sum() / variances.sum(), rtol=1e-6)


def test_no_more_tokens_are_drawn_than_a_picture_shows_and_all_make_its_components() -> None:
    n = TOKENS + 150
    write({(T5, "linear-2", "noisy"): n})
    found = answer_islands(asked(islands_layer="last"), STUDY).frame
    values = made(("decoder", 5, True), n).astype(np.float64)
    variances, axes = np.linalg.eigh(np.cov(values.T))
    points = (values - values.mean(axis=0)) @ axes[:, ::-1][:, :3]
    shown = found["position"].to_numpy()
    assert len(found) == TOKENS
    assert (np.diff(shown) > 0).all(), "each token once, in the dump's order"
    assert found["series"].tolist() == [f"s{at % 7}" for at in shown]
    assert set(found["n_tokens"]) == {n}
    np.testing.assert_allclose(np.abs(found[["pc1", "pc2", "pc3"]]), np.abs(points[shown]), atol=1e-6)
    np.testing.assert_allclose(found["explained"], variances[-3:].sum() / variances.sum(), rtol=1e-6)
    groups = {frozenset(found["cluster"][shown % 2 == odd]) for odd in (0, 1)}
    assert groups == {frozenset({0}), frozenset({1})}  # the two groups that the states were made in


def test_the_same_seed_draws_the_same_tokens_and_another_draws_others() -> None:
    write({(T5, "linear-2", "noisy"): 2 * TOKENS})
    one, again, other = (answer_islands(asked(seed=seed), STUDY).frame for seed in (0, 0, 1))
    assert one.equals(again)
    assert set(one["position"]) != set(other["position"])


def test_only_cells_of_the_study_are_drawn_and_its_query_names_their_files(tmp_path: Path) -> None:
    cells = {(T5, "linear-2", "noisy"): 30, (T5, "linear-2", "context-128"): 30, (BOLT, "seasonality-2", "noisy"): 30}
    write(cells)
    answer = answer_islands(asked(models=[T5]), STUDY)
    assert set(answer.frame.groupby(["model", "dataset", "condition"]).groups) == {(T5, "linear-2", "noisy")}
    outs = {"dumps": "embeddings", "checkpoints": "checkpoints"}
    tables = {name: [Path("data", out, name, "00000.parquet")] for name, out in outs.items()}
    catalogue.build(tmp_path / "r.duckdb", tables)
    with store.open(tmp_path / "r.duckdb") as connection:
        assert connection.sql(answer.sql).fetchall() == [(f"dumps/{T5}/linear-2/noisy.arrow",)]


def test_without_dumps_there_is_nothing_to_draw() -> None:
    assert answer_islands(asked(), STUDY).frame.empty
