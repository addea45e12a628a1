"""Spectra of weights and of constant series, angles and planes of every family, against its own modules and numpy."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from store.schema import to_arrow
from tasks import spectra
from tasks.job import IDENTITY, Job, Task
from tests.tsfmscope.models.families import CLASSES, FORECASTERS
from tsfmscope.errors import ModelError
from tsfmscope.models.base import Family
from tsfmscope.models.chronos import ChronosT5
from tsfmscope.models.types import TokenKind, Tokens, WeightMatrix, split_heads, tokens_to_table
from tsfmscope.ranks.spectrum import line_angles, numerical_rank
from tsfmscope.series.types import Windows

Make = Callable[..., Windows]
CELL = {"model": "m", "base_model": None, "size_parameter": None, "size_rule": None, "dataset": "d", "condition": "c"}
CELL |= {"context": 48, "noise": 0.0}
T5 = {"d_model": 16, "d_ff": 24, "d_kv": 6, "num_heads": 3, "num_layers": 3, "num_decoder_layers": 2}
T5 |= {"n_tokens": 128, "context_length": 48, "prediction_length": 12, "initializer_factor": 1.0}


def rows_of(
    entry: Callable[..., Any], family: Any, tokens: Tokens | None = None, /, table: str = "spectra", **spec: Any
) -> list[dict[str, Any]]:
    """The entry's rows, which are rows of the table."""
    identity = {**(CELL if tokens is not None else dict.fromkeys(IDENTITY) | {"model": "m"}), "family": "f", "ref": "r"}
    if entry is spectra.weight_spectra:
        identity["step"] = None
    elif entry is spectra.row_angles:
        identity["rows"] = 256
    elif entry is spectra.token_angles:
        identity["tokens"] = 64
    elif entry is spectra.token_plane:
        identity |= {"tokens": 1000, "seed": 0}
    data = None if tokens is None else tokens_to_table(tokens)
    rows = list(entry(Job(Task("t", 1, "m:f"), identity | spec), data, family).rows)
    to_arrow(table, [{**row, "job_key": "k"} for row in rows])
    return rows


def named(row: dict[str, Any]) -> str:
    """A matrix as `WeightMatrix.name` names it."""
    return ".".join(filter(None, (row["matrix"], row["expert"])))


class Weights:
    """A model of which only the weights are there."""

    stacks = ("decoder",)
    inert_projections = frozenset[tuple[str, str, str]]()

    def __init__(self, *matrices: WeightMatrix) -> None:
        self.matrices = matrices

    def weights(self) -> Iterator[WeightMatrix]:
        yield from self.matrices


# -- weights -----------------------------------------------------------------------------------------------------


def test_there_is_a_row_a_matrix_and_one_a_head_of_attention(family: Family) -> None:
    rows = rows_of(spectra.weight_spectra, family)
    found = [(row["stack"], row["layer"], named(row), row["attention"], row["head"]) for row in rows]
    expected: list[tuple[Any, ...]] = []
    for one in family.weights():
        heads = [None, *range(one.heads or 0)]
        expected += [(one.stack, one.layer, one.name, one.attention, head) for head in heads]
    assert found == expected
    assert len(set(found)) == len(found)
    assert {row["what"] for row in rows} == {"weight"}
    assert {row["dataset"] for row in rows} == {row["step"] for row in rows} == {None}


def test_values_are_numpy_s_of_the_matrix_and_of_its_part_that_is_the_head(family: Family) -> None:
    matrices = {(one.stack, one.layer, one.name, one.attention): one for one in family.weights()}
    for row in rows_of(spectra.weight_spectra, family):
        one = matrices[row["stack"], row["layer"], named(row), row["attention"]]
        matrix = one.matrix
        if row["head"] is not None:
            axis = 1 if row["matrix"] == "o" else 0
            matrix = np.split(matrix, row["heads"], axis=axis)[row["head"]]
        assert (row["n_rows"], row["n_columns"]) == matrix.shape
        expected = np.linalg.svd(matrix.astype(np.float64), compute_uv=False)
        np.testing.assert_allclose(row["singular_values"], expected, rtol=1e-10, atol=1e-14 * expected[0])
        idle = (row["stack"], row["attention"], row["matrix"]) in family.inert_projections
        assert (row["dtype"], row["reason"]) == ("float32", spectra.IDLE if idle else None)
        assert 1e-13 < row["floor"] < 1e-6


def test_a_head_of_the_output_projection_is_what_its_value_head_goes_through(t5: ChronosT5) -> None:
    """W_O W_V of a head is the part of W_O that reads the head, times the head's W_V: their sum is the whole."""
    found = {one.name: one for one in t5.weights() if (one.stack, one.layer, one.attention) == ("encoder", 1, "self")}
    parts = zip(split_heads(found["o"], 3), split_heads(found["v"], 3), strict=True)
    np.testing.assert_allclose(sum(o @ v for o, v in parts), found["o"].matrix @ found["v"].matrix, atol=1e-5)


def test_matrices_that_were_rounded_have_the_floor_of_that_rounding(patchtst: Family) -> None:
    plain = rows_of(spectra.weight_spectra, patchtst)
    rounded = rows_of(spectra.weight_spectra, patchtst, weights_dtype="bfloat16")
    assert {row["dtype"] for row in rounded} == {"bfloat16"}
    for one, other in zip(plain, rounded, strict=True):
        assert other["floor"] == pytest.approx(one["floor"] * 2**16, rel=1e-3)


def matrix(what: str, shape: tuple[int, int], heads: int | None = 8) -> WeightMatrix:
    made = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    return WeightMatrix("decoder", 1, what, "self" if heads else None, heads, made)


def test_grouped_attention_has_as_many_key_and_value_heads_as_their_rows_make() -> None:
    """Eight query heads of 4, two key and value heads of 4."""
    model = Weights(matrix("q", (32, 20)), matrix("k", (8, 20)), matrix("v", (8, 20)), matrix("o", (20, 32)))
    rows = rows_of(spectra.weight_spectra, model)
    counts = {what: sum(row["matrix"] == what and row["head"] is not None for row in rows) for what in "qkvo"}
    assert counts == {"q": 8, "k": 2, "v": 2, "o": 8}
    assert {row["n_rows"] for row in rows if row["head"] is not None and row["matrix"] != "o"} == {4}


def test_value_heads_may_be_of_another_width_than_query_heads() -> None:
    model = Weights(matrix("q", (32, 20)), matrix("k", (32, 20)), matrix("v", (24, 20)), matrix("o", (20, 24)))
    rows = rows_of(spectra.weight_spectra, model)
    assert {row["n_rows"] for row in rows if row["head"] is not None and row["matrix"] == "v"} == {3}


@pytest.mark.parametrize(
    ("what", "shape", "text"),
    [
        ("k", (9, 20), "got 9 rows, expected heads of 4 rows"),
        ("k", (2, 20), "got 2 rows, expected heads of 4 rows"),
        ("v", (9, 20), "got 9 rows, expected a multiple of 8"),
        ("o", (20, 9), "got 9 columns, expected a multiple of 8"),
    ],
)
def test_a_matrix_that_is_not_made_of_heads_is_refused(what: str, shape: tuple[int, int], text: str) -> None:
    matrices = {"q": (32, 20), "k": (32, 20), what: shape}
    with pytest.raises(ValueError, match=f"decoder block 1 {what}: {text}"):
        rows_of(spectra.weight_spectra, Weights(*(matrix(*one) for one in matrices.items())))


def test_a_matrix_of_zeros_says_so_and_mlp_matrices_have_no_heads() -> None:
    zero = WeightMatrix("decoder", 1, "mlp_in", None, None, np.zeros((6, 4), np.float32))
    (row,) = rows_of(spectra.weight_spectra, Weights(zero))
    assert (row["singular_values"], row["floor"], row["reason"]) == ([0.0] * 4, 1.0, "all entries are zero")
    assert row["head"] is row["heads"] is row["attention"] is None


# -- constant series ---------------------------------------------------------------------------------------------


@pytest.fixture
def constant(windows_of: Make) -> Windows:
    return windows_of(np.full((3, 48), 2.0), np.full((3, 12), 2.0))


def test_a_constant_s_layers_hold_what_numpy_says_with_and_without_special_tokens(
    family: Family, constant: Windows
) -> None:
    tokens = family.tokenize(constant)
    rows = rows_of(spectra.constant_spectra, family, tokens)
    one, at = tokens.take([0]), iter(rows)
    for layer in family.hidden_states(one):
        kinds = one.kinds[layer.stack][0]
        valued = np.isin(kinds, (TokenKind.OBSERVATION, TokenKind.FUTURE))
        for name, kept in (("valued", valued), ("with_special", kinds != TokenKind.PADDING)):
            row = next(at)
            assert (row["stack"], row["layer"], row["normed"]) == (layer.stack, layer.layer, layer.normed)
            assert (row["tokens"], row["n_rows"]) == (name, kept.sum())
            expected = np.linalg.svd(layer.states[0][kept].astype(np.float64), compute_uv=False)
            np.testing.assert_allclose(row["singular_values"], expected, rtol=0, atol=1e-5 * expected.max(initial=1))
            assert (row["reason"] is None) == bool(layer.states[0][kept].any())
    assert next(at, None) is None


def encoder_ranks(family: Family, constant: Windows, tokens: str) -> list[int]:
    """ε-rank of each layer of the encoder, at a tolerance a little above the rounding of a float32 pass."""
    rows = rows_of(spectra.constant_spectra, family, family.tokenize(constant))
    kept = [row for row in rows if (row["stack"], row["tokens"]) == ("encoder", tokens)]
    return [numerical_rank(np.array(row["singular_values"]), 1e-5) for row in kept]


def test_without_eos_identical_tokens_stay_identical_and_rank_1_throughout(constant: Windows) -> None:
    """Fig. 5c is due to EOS: with relative positions, each step attends to equals whatever the bias."""
    family = ChronosT5.new(T5, seed=1)
    config = copy.deepcopy(family.network.config)
    config.chronos_config = config.chronos_config | {"use_eos_token": False}
    family.network.config = config
    bare = ChronosT5(family.network)
    assert encoder_ranks(bare, constant, "valued") == encoder_ranks(bare, constant, "with_special") == [1] * 5


def test_with_eos_rank_grows_through_the_layers(t5: ChronosT5, constant: Windows) -> None:
    valued, special = (encoder_ranks(t5, constant, name) for name in ("valued", "with_special"))
    assert valued[0] == 1 and special[0] == 2
    assert valued[3] > 1 and special[3] > 2


def test_several_windows_are_stacked(t5: ChronosT5, windows: Make) -> None:
    rows = rows_of(spectra.constant_spectra, t5, t5.tokenize(windows(count=4)), windows=3)
    assert {row["n_rows"] for row in rows if (row["stack"], row["tokens"]) == ("encoder", "valued")} == {3 * 48}


# -- angles ------------------------------------------------------------------------------------------------------


def test_angles_are_those_of_the_first_embedded_tokens_of_the_fullest_window(family: Family, windows: Make) -> None:
    made = windows(count=4)
    made.context[0, :40] = np.nan
    tokens, stack = family.tokenize(made), family.stacks[0]
    rows = rows_of(spectra.token_angles, family, tokens, table="angles", tokens=5)
    valued = np.isin(tokens.kinds[stack], spectra.VALUED)
    window = int(valued.sum(axis=1).argmax())
    states = next(family.hidden_states(tokens)).states[window][valued[window]][:5]
    np.testing.assert_allclose([row["angles"] for row in rows], line_angles(states), atol=1e-5)
    assert [row["row"] for row in rows] == list(range(len(rows)))
    assert {(row["what"], row["stack"], row["layer"], row["dimension"]) for row in rows} == {
        ("tokens", stack, 0, family.width)
    }


def test_at_most_64_tokens_have_angles(t5: ChronosT5) -> None:
    long = ChronosT5.new(T5 | {"context_length": 100}, seed=1)
    context = np.random.default_rng(0).normal(size=(2, 100)).cumsum(axis=1).astype(np.float32)
    made = Windows(context, context[:, :12], ["a", "b"], np.full(2, 100), "walks", "D", 7)
    rows = rows_of(spectra.token_angles, long, long.tokenize(made), table="angles")
    assert len(rows) == len(rows[0]["angles"]) == 64


def test_no_token_that_stands_for_a_value_has_no_angles(t5: ChronosT5, windows_of: Make) -> None:
    empty = windows_of(np.full((2, 48), np.nan), np.zeros((2, 12)))
    with pytest.raises(ValueError, match="tokens of encoder: none stands for a value"):
        rows_of(spectra.token_angles, t5, t5.tokenize(empty), table="angles")


def test_rows_of_the_first_query_projection_come_head_by_head(family: Family) -> None:
    query = next((one for one in family.weights() if one.name == "q"), None)
    if query is None:
        with pytest.raises(ModelError, match="expected a query projection"):
            rows_of(spectra.row_angles, family, table="angles")
        return
    rows = rows_of(spectra.row_angles, family, table="angles")
    heads, width = query.heads, len(query.matrix) // query.heads
    each = min(width, 256 // heads)
    assert [row["head"] for row in rows] == np.repeat(np.arange(heads), each).tolist()
    if each == width:
        np.testing.assert_allclose([row["angles"] for row in rows], line_angles(query.matrix), atol=1e-12)
    assert {(row["what"], row["matrix"], row["stack"], row["layer"]) for row in rows} == {
        ("rows", "q", family.stacks[0], 1)
    }


def test_few_rows_are_picked_evenly_from_each_head() -> None:
    model = Weights(matrix("q", (40, 9), heads=4))
    rows = rows_of(spectra.row_angles, model, table="angles", rows=13)
    kept = [head * 10 + inside for head in range(4) for inside in (0, 3, 6)]
    expected = line_angles(model.matrices[0].matrix[kept])
    assert np.array([row["angles"] for row in rows]).tolist() == expected.tolist()
    assert len(rows_of(spectra.row_angles, model, table="angles", rows=1)) == 4


# -- planes ------------------------------------------------------------------------------------------------------


def test_a_quantised_family_s_plane_shows_every_id_once_with_its_value(t5: ChronosT5, windows: Make) -> None:
    tokens = t5.tokenize(windows(count=9))
    rows = rows_of(spectra.token_plane, t5, tokens, table="planes")
    valued = np.isin(tokens.kinds["encoder"], spectra.VALUED)
    types = [row["type"] for row in rows]
    assert sorted(types) == np.unique(tokens.types["encoder"][valued]).tolist()
    vectors = t5.network.shared.weight.detach().double().numpy()[types]
    left, values, _ = np.linalg.svd(vectors, full_matrices=False)
    np.testing.assert_allclose(
        np.abs([[row["x"], row["y"]] for row in rows]), np.abs(left[:, :2] * values[:2]), atol=1e-5
    )
    import torch

    ids = torch.tensor(types)[None, None]
    centres = t5._tokenizer.output_transform(ids, torch.ones(1))[0, 0]
    assert [row["value"] for row in rows] == pytest.approx(centres.tolist(), abs=1e-6)
    assert [row["token"] for row in rows] == list(range(len(rows)))


def test_a_crowded_vocabulary_is_thinned_evenly_by_id_and_keeps_its_ends(t5: ChronosT5, windows: Make) -> None:
    tokens = t5.tokenize(windows(count=9))
    every = sorted(row["type"] for row in rows_of(spectra.token_plane, t5, tokens, table="planes"))
    some = sorted(row["type"] for row in rows_of(spectra.token_plane, t5, tokens, table="planes", tokens=7))
    assert len(some) == 7
    places = [every.index(one) for one in some]
    assert (places[0], places[-1]) == (0, len(every) - 1)
    assert np.ptp(np.diff(places)) <= 1


@pytest.mark.parametrize(
    "family", [name for name in FORECASTERS if CLASSES[name].id_values is Family.id_values], indirect=True
)
def test_other_families_show_a_seeded_sample_without_values(family: Family, windows: Make) -> None:
    tokens = family.tokenize(windows(count=9))
    one, again = (rows_of(spectra.token_plane, family, tokens, table="planes", tokens=4) for _ in range(2))
    assert one == again and len(one) == 4
    assert {row["value"] for row in one} == {None}
    assert tokens.types or {row["type"] for row in one} == {None}
    other = rows_of(spectra.token_plane, family, tokens, table="planes", tokens=5, rows=20)
    assert len(other) == 5


def test_scores_over_one_token_weigh_nothing_and_their_matrices_say_so(bolt: Family) -> None:
    rows = rows_of(spectra.weight_spectra, bolt)
    idle = {(row["stack"], row["attention"], row["matrix"]) for row in rows if row["reason"] is not None}
    assert idle == {("decoder", "self", "q"), ("decoder", "self", "k")}
