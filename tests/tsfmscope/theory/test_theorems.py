"""Right sides and constructions of each theorem against hand-made cases, slow twins and sampling."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tsfmscope.theory import attention_theorems as attention
from tsfmscope.theory import embedding_theorems as embedding
from tsfmscope.theory.instances import attend, random_heads, softmax_columns

RNG = np.random.default_rng
SIGMA = np.array([1.0, 0.6, 0.5, 0.3, 0.2, 0.1])


# -- Theorem 1 ---------------------------------------------------------------------------------------------------------
def test_the_quasimatrix_of_1_and_x_has_their_norms() -> None:
    found = embedding.quasimatrix_values(lambda x: np.stack([np.ones_like(x), x]), np.array([0.3]), 3)
    np.testing.assert_allclose(found, [math.sqrt(2), math.sqrt(2 / 3)])


@pytest.mark.parametrize("seed", range(6))
def test_the_variation_of_a_spline_is_that_of_its_derivative(seed: int) -> None:
    smooth = embedding.random_spline(RNG(seed), 5)
    x = np.linspace(-1, 1, 4001)  # finer: the third difference is rounding
    values = smooth.embed(x)
    for _ in range(smooth.nu):
        values = np.gradient(values, x, axis=1)
    assert np.abs(np.diff(values[:, 4:-4])).sum(axis=1).max() == pytest.approx(smooth.variation, rel=5e-2)


@pytest.mark.parametrize("seed", range(8))
def test_no_analytic_embedding_is_larger_on_its_ellipse_than_it_says(seed: int) -> None:
    analytic = embedding.random_analytic(RNG(seed), 6)
    turn = analytic.rho * np.exp(1j * np.linspace(0, 2 * np.pi, 2001))
    found = np.abs(analytic.embed((turn + 1 / turn) / 2)).max()
    assert 0.3 * analytic.largest < found <= analytic.largest * (1 + 1e-9) or analytic.kind == "series"
    assert found <= analytic.largest * (1 + 1e-9)


def test_right_sides_of_theorem_1_by_hand() -> None:
    smooth = embedding.Smooth(lambda x: x, 2, 3.0, np.array([]), "")
    j, continuous, discrete = embedding.smooth_bound(smooth, 6, 9)
    assert j.tolist() == [4, 5]  # ν + 1 < j ≤ d - 1
    assert discrete[0] == pytest.approx(2 * 3 * math.sqrt(54) / (math.pi * 2 * 1))
    assert continuous[1] == pytest.approx(4 * 3 * math.sqrt(6) / (math.pi * 2 * 4))
    analytic = embedding.Analytic(lambda x: x, 2.0, 5.0, "")
    j, continuous, discrete = embedding.analytic_bound(analytic, 3, 4)
    assert j.tolist() == [0, 1, 2]
    np.testing.assert_allclose(discrete, 2 * 5 * math.sqrt(12) * np.array([2.0, 1.0, 0.5]))
    np.testing.assert_allclose(continuous, 4 * 5 * math.sqrt(3) * np.array([2.0, 1.0, 0.5]))


# -- Corollary 2 -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("beta", [0.1, 1.0, 8.0])
def test_the_gate_is_swish_and_bounded_on_the_ellipse_where_w_is_at_most_1(beta: float) -> None:
    x = np.array([-1.0, -0.2, 0.0, 0.7])
    gate = embedding.Gate(beta, np.array([0.9, -0.4]), np.array([1.1, 2.0]))
    for i in range(2):
        pre = gate.w[i] * x
        np.testing.assert_allclose(gate.embed(x)[i], pre / (1 + np.exp(-beta * pre)) * gate.v[i] * x, atol=1e-15)
    known = embedding.proof_ellipse(beta)
    turn = known.rho * np.exp(1j * np.linspace(0, 2 * np.pi, 4001))
    on = (turn + 1 / turn) / 2
    edge = embedding.Gate(beta, np.array([1.0, -1.0, 0.3]), np.array([1.0, 1.0, 1 / 0.3]))
    assert np.abs(edge.embed(on)).max() <= known.largest * (1 + 1e-9)
    assert known.largest <= 2 + math.pi**2 / (8 * beta**2)  # O(1 + β⁻²), as the proof has it


def test_the_rate_is_measured_above_rounding_and_the_same_for_a_seed() -> None:
    rows = embedding.rate_points(1, 2.0)
    assert rows == embedding.rate_points(1, 2.0) != embedding.rate_points(2, 2.0)
    fitted = [row for row in rows if row["fitted"]]
    assert len(fitted) >= 5
    slope = np.polyfit([row["x"] for row in fitted], np.log([row["y"] for row in fitted]), 1)[0]
    assert slope < -2 * math.asinh(math.pi / 2) < -math.log(embedding.radius(2.0))  # poles at ±πi/β, odd functions


# -- Theorem 2 ---------------------------------------------------------------------------------------------------------
def test_the_right_side_of_theorem_2_by_hand() -> None:
    assert embedding.right_side(100, 3, 0.5) == 15.0
    assert embedding.right_side(10, 3, 0.5) == 10.0


def test_activations_are_contractive_as_the_theorem_asks() -> None:
    x = np.concatenate([np.linspace(-50, 50, 10_001), [0.0, -1e-12, 1e-12]])
    for name, activation in embedding.ACTIVATIONS.items():
        assert (np.abs(activation(x)) <= np.abs(x) * (1 + 1e-12)).all(), name


def test_hadamard_signs_all_but_reach_the_bound() -> None:
    for seed in range(10):
        side = embedding.hadamard_instance(RNG(seed))
        size = side.setting["hidden"]
        assert side.y == size
        assert side.bound == pytest.approx(size + 1, rel=1e-3)


# -- Theorems 3 and 5 --------------------------------------------------------------------------------------------------
def test_the_projection_has_the_rank_and_the_norms_of_the_theorem() -> None:
    vocabulary = RNG(0).standard_normal((6, 20))
    heads = random_heads(RNG(1), 2, 6, value_norm=1.7, score_norm=1.7)
    small = attention.project_on_leading(heads, vocabulary, 3)
    for whole, less in zip(heads, small, strict=True):
        assert np.linalg.matrix_rank(less.reshape(6, 6)) == 3
        assert np.linalg.norm(less.reshape(6, 6), 2) <= np.linalg.norm(whole.reshape(6, 6), 2) * (1 + 1e-12)
    products = (np.linalg.norm(one.query.reshape(6, 6).T @ one.key.reshape(6, 6), 2) for one in (small, heads))
    assert next(products) <= next(products) * (1 + 1e-12)


def test_the_error_of_repeated_columns_is_that_of_the_long_input() -> None:
    vocabulary = RNG(2).standard_normal((4, 9)) / 5
    heads = random_heads(RNG(3), 2, 4, value_norm=1.4, score_norm=1.4)
    small = attention.project_on_leading(heads, vocabulary, 2)
    columns, times = vocabulary[:, [1, 4, 5]], np.array([3, 1, 6])
    long = columns.repeat(times, axis=1)
    expected = np.linalg.norm(attend(long, heads) - attend(long, small))
    assert attention.compression_error(heads, small, attention.Input(columns, times, "")) == pytest.approx(expected)


def test_right_sides_of_theorem_3_by_hand() -> None:
    assert attention.printed_bound(4, 1.0) == pytest.approx(2 * math.e**2 * (1 + 6 * math.e + 9))
    assert attention.repaired_bound(4, 0.5, 100, 1) == pytest.approx(0.5 * 2 * 3 * math.e)
    assert attention.repaired_bound(4, 0.5, 4, 4) == pytest.approx(0.5 * 2 * 3 * 2)


def test_one_column_many_times_has_an_error_that_grows_as_the_root_of_the_length() -> None:
    rows = attention.repeated_points(0)
    ratios = [row["y"] / math.sqrt(row["x"]) for row in rows]
    np.testing.assert_allclose(ratios, ratios[0])
    assert rows[0]["y"] <= rows[0]["bound"] < rows[-1]["y"]  # the printed bound holds for one, and fails


def test_the_attended_diagonal_is_eq_15() -> None:
    values, length, strength = np.array([1.0, 0.5]), 5, math.log(8)
    found = attention.diagonal_attention(values, length, strength)
    for j, value in enumerate(values):
        peak = math.exp(strength * value**2 / 0.25)
        assert found[j, j] == pytest.approx(value * peak / (length - 1 + peak))
        assert found[1 - j, j] == pytest.approx(values[1 - j] / (length - 1 + peak))
    np.testing.assert_allclose(found[:, 2:], np.repeat(values[:, None] / length, 3, axis=1))


def test_no_matrix_of_the_rank_does_better_than_the_best_error() -> None:
    attended = attention.diagonal_attention(SIGMA[:4], 9, math.log(16))
    best = attention.best_errors(attended)
    u, _, _ = np.linalg.svd(attended)
    for rank in range(1, 4):
        achieved = u[:, :rank] @ u[:, :rank].T  # W̃_V for W_V = I
        assert np.linalg.norm(attended - achieved @ attended) == pytest.approx(best[rank])
        for seed in range(20):
            other = RNG(seed).standard_normal((4, rank)) @ RNG(seed + 99).standard_normal((rank, 4))
            assert np.linalg.norm(attended - other @ attended) >= best[rank] * (1 - 1e-12)


# -- Theorem 4 and Corollary 1 -----------------------------------------------------------------------------------------
def test_right_sides_of_theorem_4_against_loops() -> None:
    heads, depth, size = 2, 900.0, 3
    sigma = dict(enumerate(SIGMA, start=1))
    upper, lower = (attention.upper_bound(SIGMA, heads, depth), attention.lower_bound(SIGMA, heads, depth))
    for k in range(1, 7):
        right = [sigma[k - j + 1] + math.e**2 * heads / 30 * sigma[(j - 1) // heads + 1] for j in range(1, k + 1)]
        assert upper[k - 1] == pytest.approx(min(right))
        left = [
            0.25 * (sigma[(i - 1) * size + math.ceil(k / i)] + sigma[math.ceil(k / i)] / 30)
            for i in (1, 2)
            if math.ceil(k / i) < size
        ]
        assert lower[k - 1] == pytest.approx(max(left, default=0.0))


def test_the_lifting_layer_has_the_singular_values_of_eq_29() -> None:
    inputs, heads = attention.lifting_construction(SIGMA, 2, 6)  # L = d: no trailing columns
    np.testing.assert_allclose(np.linalg.svd(inputs, compute_uv=False), SIGMA)
    assert np.linalg.norm(heads.value, 2, axis=(1, 2)).tolist() == [1.0, 1.0]
    root = 0.5
    diagonal = SIGMA + root * np.array([SIGMA[0], SIGMA[1], 0, SIGMA[0], SIGMA[1], 0])
    np.testing.assert_allclose(attention.layer(inputs, heads, 4.0), np.sort(diagonal)[::-1], rtol=1e-12)


def test_indices_of_corollary_1_by_hand() -> None:
    sigma = np.array([6.0, 5, 4, 3, 2, 1])
    constant = 1 + 2 * math.e**2
    printed, repaired = (attention.corollary_upper(sigma, 2, form) / constant for form in ("printed", "repaired"))
    np.testing.assert_allclose(printed, [6, 5, 5, 5, 4, 4])  # ⌊(k + 1)/3⌋ + 1 = 1, 2, 2, 2, 3, 3
    np.testing.assert_allclose(repaired, [6, 6, 6, 5, 5, 5])  # ⌊(k - 1)/3⌋ + 1 = 1, 1, 1, 2, 2, 2
    np.testing.assert_allclose(attention.corollary_lower(sigma, 2, "printed"), 0.8 * np.array([6, 6, 5]))
    np.testing.assert_allclose(attention.corollary_lower(sigma, 2, "repaired"), 0.8 * np.array([6, 6, 5, 5]))


def test_rank_one_input_and_one_head_contradict_corollary_1_as_printed() -> None:
    """k = h = 1: σ_1(Z) ≤ O(1) σ_2(U) cannot be, as σ_2(U) is as small as one likes."""
    inputs, heads = attention.lifting_construction(np.array([1.0, 1e-6]), 1, 2)
    assert attention.layer(inputs, heads, 1.0)[0] > attention.corollary_upper(np.array([1.0, 1e-6]), 1, "printed")[0]


# -- Theorem 6 ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("heads", "width", "length"), [(1, 6, 6), (2, 6, 9), (3, 6, 20), (8, 16, 16)])
def test_the_construction_of_theorem_6_has_its_hypotheses(heads: int, width: int, length: int) -> None:
    values = np.exp(-0.5 * np.arange(width))
    made = attention.construct(RNG(0), values, heads, length)
    np.testing.assert_allclose(np.linalg.svd(made.inputs, compute_uv=False), values, rtol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(made.vectors, axis=0), 1.0)
    products = np.abs(made.vectors.T @ made.vectors)
    assert products[~np.eye(width, dtype=bool)].max() < 1
    size = width // heads
    assert made.diagonal[:size].tolist() == values[::heads].tolist()  # σ_1, σ_{h+1}, ...
    scores = (made.heads.query[0] @ made.inputs).T @ (made.heads.key[0] @ made.inputs) / math.sqrt(size)
    weights = softmax_columns(scores)
    np.testing.assert_allclose(weights[:width, :width], np.eye(width), atol=1e-12)
    np.testing.assert_allclose(weights[:, width:], 1 / length)


def test_one_dimension_a_head_is_refused() -> None:
    with pytest.raises(ValueError, match="heads: got 3 for width 3, expected at least 2 dimensions per head"):
        attention.construct(RNG(0), np.ones(3), 3, 3)


@pytest.mark.parametrize(("heads", "form"), [(2, "printed"), (3, "printed"), (1, "repaired"), (3, "repaired")])
def test_the_sparse_factors_have_the_rank_norms_and_zeros_of_claim_2(heads: int, form: str) -> None:
    width, rank = 12, 2
    made = attention.construct(RNG(1), np.exp(-0.3 * np.arange(width)), heads, 15)
    small = attention.sketch_heads(made, rank, form)  # type: ignore[arg-type]
    for whole, less in zip(made.heads, small, strict=True):
        assert np.linalg.norm(less) <= np.linalg.norm(whole) * (1 + 1e-12)
        assert max(np.linalg.matrix_rank(one) for one in less) <= rank + 1
    assert attention.sketch_error(made, rank, form) <= 4 * math.sqrt(heads) * made.inputs.max() * 1.0  # type: ignore[arg-type]


def test_no_shared_matrix_beats_the_best_shared_error() -> None:
    made = attention.construct(RNG(2), SIGMA, 2, 8)
    best, attended = attention.best_shared(made), attend(made.inputs, made.heads)
    for rank in (1, 2):
        for seed in range(20):
            other = RNG(seed).standard_normal((6, rank)) @ RNG(seed + 99).standard_normal((rank, 6))
            assert np.linalg.norm(attended - other @ attended, 2) >= best[rank] * (1 - 1e-12)
