"""Probes against independent definitions, their invariants, and hard input."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score, roc_auc_score
from sklearn.model_selection import KFold, cross_val_predict

from tsfmscope.errors import DataError
from tsfmscope.statistics import probes


def data(count: int = 120, width: int = 6, noise: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(count, width)) * np.logspace(-3, 3, width)
    return features, (features / features.std(axis=0))[:, :2] + noise * rng.normal(size=(count, 2))


def test_predictions_are_those_of_a_ridge_whose_penalty_leave_one_out_chooses() -> None:
    features, targets = data(30, 3)
    found = probes.predict(features, targets, seed=3, repeats=1)[0]
    folds = KFold(probes.FOLDS, shuffle=True, random_state=np.random.RandomState([3, 0]))
    expected = np.empty_like(targets)
    for train, test in folds.split(features):
        mean, spread = features[train].mean(axis=0), features[train].std(axis=0)
        scaled, others = (features[train] - mean) / spread, (features[test] - mean) / spread
        for column in range(2):
            known = targets[train, column]
            errors = {
                penalty: np.square(known - cross_val_predict(Ridge(penalty), scaled, known, cv=len(train))).sum()
                for penalty in probes.PENALTIES
            }
            ridge = Ridge(min(errors, key=lambda penalty: errors[penalty])).fit(scaled, known)
            expected[test, column] = ridge.predict(others)
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_r_squared_is_that_of_scikit_learn_and_its_interval_contains_it() -> None:
    features, targets = data()
    predicted = probes.predict(features, targets, seed=0)
    score = probes.r_squared(predicted, targets, "label", seed=0)
    total = np.square(targets - targets.mean(axis=0)).sum()
    by_hand = np.mean([1 - np.square(part - targets).sum() / total for part in predicted])
    assert score.value == pytest.approx(by_hand, abs=1e-12)
    one = probes.r_squared(predicted[:1, :, :1], targets[:, :1], "label", seed=0)
    assert one.value == pytest.approx(r2_score(targets[:, 0], predicted[0, :, 0]), abs=1e-12)
    assert score.low < score.value < score.high and 0.7 < score.value < 0.9


def test_auc_is_that_of_scikit_learn_and_counts_ties_half() -> None:
    rng = np.random.default_rng(1)
    classes = rng.choice(["a", "b", "c"], 90)
    targets = probes.one_hot(classes, "label")
    predicted = np.round(rng.normal(size=(2, 90, 3)) + 0.5 * targets, 0)
    expected = np.mean([roc_auc_score(targets[:, k] > 0, predicted[r, :, k]) for r in range(2) for k in range(3)])
    score = probes.auc(predicted, targets, "label", seed=0)
    assert score.value == pytest.approx(expected, abs=1e-12)
    assert score.low < score.value < score.high


def test_auc_of_four_series_by_hand() -> None:
    # Of the four pairs, (0.9, 0.1), (0.9, 0.5) and (0.3, 0.1) are in order, and (0.3, 0.5) is not.
    predicted = np.array([0.1, 0.5, 0.9, 0.3])[None, :, None]
    assert probes.auc(predicted, np.array([-1, -1, 1, 1.0])[:, None], "label", seed=0).value == 0.75


@pytest.mark.parametrize("seed", range(3))
def test_features_without_information_have_an_r_squared_near_0_and_an_auc_near_a_half(seed: int) -> None:
    rng = np.random.default_rng(seed)
    features, targets = rng.normal(size=(400, 20)), rng.normal(size=(400, 1))
    assert abs(probes.r_squared(probes.predict(features, targets, seed=0), targets, "label", seed=0).value) < 0.03
    classes = rng.choice(["a", "b"], 400)
    columns = probes.one_hot(classes, "label")
    predicted = probes.predict(features, columns, seed=0, classes=classes)
    assert abs(probes.auc(predicted, columns, "label", seed=0).value - 0.5) < 0.08


@pytest.mark.slow
def test_the_interval_covers_the_r_squared_of_new_series_a_little_too_seldom() -> None:
    """The R² of a probe that is fitted to all series and scored on 20,000 others: 89 of 100 in a longer simulation."""
    rng, covered = np.random.default_rng(0), 0
    weights = rng.normal(size=(8, 1)) / 3

    def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
        features = rng.normal(size=(count, 8))
        return features, features @ weights + rng.normal(size=(count, 1))

    others, wanted = draw(20_000)
    for _ in range(100):
        features, targets = draw(300)
        score = probes.r_squared(probes.predict(features, targets, seed=0), targets, "label", seed=0)
        ridge = Ridge(1.0).fit(features, targets)
        covered += score.low <= r2_score(wanted, ridge.predict(others)) <= score.high
    assert 82 <= covered <= 95


@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1.0, 1e150, 1e300])
def test_the_unit_of_features_changes_no_prediction(scale: float) -> None:
    features, targets = data()
    expected = probes.predict(features, targets, seed=0)
    np.testing.assert_allclose(probes.predict(features * scale / 1e3, targets, seed=0), expected, atol=1e-6)


def test_constant_duplicated_and_rank_deficient_features_are_predicted_from() -> None:
    features, targets = data()
    wide = np.concatenate([features, features, np.full((120, 2), 7.0), np.zeros((120, 200))], axis=1)
    score = probes.r_squared(probes.predict(wide, targets, seed=0), targets, "label", seed=0)
    assert score.value == pytest.approx(
        probes.r_squared(probes.predict(features, targets, seed=0), targets, "label", seed=0).value, abs=0.02
    )
    constant = probes.predict(np.ones((120, 3)), targets, seed=0)
    assert probes.r_squared(constant, targets, "label", seed=0).value < 0
    half = probes.predict(features.astype(np.float16), targets, seed=0)
    assert np.isfinite(half).all()


@pytest.mark.parametrize(
    ("message", "run"),
    [
        ("got 19 series with a label, expected at least 20", lambda: probes.predict(*data(19), seed=0)),
        (
            "shop is the same for all 30 series, expected labels that differ",
            lambda: probes.r_squared(np.zeros((1, 30, 1)), np.full((30, 1), 0.1), "shop", seed=0),
        ),
        ("shop has the class a alone, expected two or more", lambda: probes.one_hot(np.array(["a"] * 9), "shop")),
        ("shop 'b' has 4 series, expected at least 5", lambda: probes.one_hot(np.array([*"aaaaabbbb"]), "shop")),
    ],
)
def test_labels_that_cannot_be_predicted_are_named(message: str, run: object) -> None:
    with pytest.raises(DataError, match=message):
        run()  # type: ignore[operator]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_refused(value: float) -> None:
    features, targets = data()
    features[3, 1] = value
    with pytest.raises(ValueError, match="expected finite features and targets"):
        probes.predict(features, targets, seed=0)
