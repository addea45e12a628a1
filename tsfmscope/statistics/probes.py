"""Linear probes: what a ridge regression reads from features, scored on series that did not fit it.

The regression is closed-form on features that are standardised on the training part, and its penalty is chosen
inside the training part by leave-one-out (scikit-learn's RidgeCV). A probe that is trained by gradient steps on
features that are not standardised measures its optimiser, too: published R² of layers reach -89,313.
"""

from __future__ import annotations

import functools
import warnings
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from tsfmscope.errors import DataError
from tsfmscope.statistics.bootstrap import draw_counts

Features = Float[np.ndarray, "series feature"]
Targets = Float[np.ndarray, "series column"]

# Parts of the series that are predicted in turn, and how often the series are divided anew.
FOLDS, REPEATS = 5, 3
# Penalties that are tried, relative to features of standard deviation 1.
PENALTIES = np.logspace(-2, 5, 8)
RESAMPLES = 500
LEAST_SERIES = 4 * FOLDS


class ProbeScore(NamedTuple):
    """R² or AUC on series that did not fit the probe, and its 95 % interval over series."""

    value: float
    low: float
    high: float


def predict(
    features: Features, targets: Targets, *, seed: int, classes: np.ndarray | None = None, repeats: int = REPEATS
) -> Float[np.ndarray, "repeat series column"]:
    """Predict the targets of every series by a ridge regression on the other folds, for each division into folds.

    The penalty of each column is the one of PENALTIES with the least leave-one-out error in the training part. A
    feature that is constant there predicts nothing. classes: class of each series; every fold has its share of each.
    Raises DataError for fewer than LEAST_SERIES series; ValueError for NaN or infinity.
    """
    from sklearn.linear_model import RidgeCV
    from sklearn.model_selection import KFold, StratifiedKFold
    from sklearn.preprocessing import StandardScaler

    features, targets = np.asarray(features, dtype=np.float64), np.asarray(targets, dtype=np.float64)
    if len(features) < LEAST_SERIES:
        raise DataError(f"labels: got {len(features)} series with a label, expected at least {LEAST_SERIES}")
    if not (np.isfinite(features).all() and np.isfinite(targets).all()):
        raise ValueError("probe: expected finite features and targets, got NaN or infinity")
    # The largest float64 values would overflow in the variance.
    features = features / (np.abs(features).max(axis=0) + np.finfo(np.float64).tiny)
    predicted = np.empty((repeats, *targets.shape))
    for repeat in range(repeats):
        kind = KFold if classes is None else StratifiedKFold
        folds = kind(FOLDS, shuffle=True, random_state=np.random.RandomState([seed, repeat]))
        for train, test in folds.split(features, None if classes is None else classes):
            scaler = StandardScaler().fit(features[train])
            ridge = RidgeCV(PENALTIES, alpha_per_target=targets.shape[1] > 1)
            ridge.fit(scaler.transform(features[train]), targets[train])
            predicted[repeat, test] = ridge.predict(scaler.transform(features[test])).reshape(len(test), -1)
    return predicted


def r_squared(
    predicted: Float[np.ndarray, "repeat series column"], targets: Targets, name: str, *, seed: int
) -> ProbeScore:
    """Return the share of the targets' variance that predictions explain, all columns together.

        R² = 1 - Σ (y - ŷ)² / Σ (y - ȳ)²

    ȳ is the mean over all series. The value is the mean over divisions into folds. The interval is the percentile
    bootstrap over series, with the predictions as they are: with 300 simulated series it covered the R² on new ones in
    89 % of 200 draws, not 95 %, because the fits are not drawn anew. R² is below 0 where the mean predicts better.
    Raises DataError, with the name of the label, for constant targets.
    """
    targets = np.asarray(targets, dtype=np.float64)
    total = np.square(targets - targets.mean(axis=0)).sum(axis=1)
    # A constant differs from its mean by rounding.
    if not (total.sum() > 1e-20 * np.square(targets).sum()):
        raise DataError(f"labels: {name} is the same for all {len(targets)} series, expected labels that differ")
    errors = np.square(predicted - targets).sum(axis=2).mean(axis=0)
    counts = _resamples(len(targets), seed)
    draws = 1 - (counts @ errors) / (counts @ total)
    low, high = np.quantile(draws, [0.025, 0.975]).tolist()
    return ProbeScore(1 - float(errors.sum() / total.sum()), low, high)


def one_hot(classes: np.ndarray, name: str) -> Targets:
    """Return the targets [N, class] of a probe of classes: 1 for a series' own class, else -1.

    Of two classes the second alone, in the order of their names, has a column. Raises DataError, with the name of the
    label, for one class, and for a class with fewer than FOLDS series.
    """
    names, numbers, sizes = np.unique(classes.astype(str), return_inverse=True, return_counts=True)
    if len(names) < 2:
        raise DataError(
            f"labels: {name} has the class {', '.join(names) or 'of no series'} alone, expected two or more"
        )
    if sizes.min() < FOLDS:
        least = str(names[sizes.argmin()])
        raise DataError(f"labels: {name} {least!r} has {sizes.min()} series, expected at least {FOLDS}; leave it out")
    columns = np.where(numbers[:, None] == np.arange(len(names)), 1.0, -1.0)
    return columns[:, 1:] if len(names) == 2 else columns


def auc(predicted: Float[np.ndarray, "repeat series column"], targets: Targets, name: str, *, seed: int) -> ProbeScore:
    """Return the area under the ROC curve, the mean over columns of `one_hot` and over divisions into folds.

    It is the chance that a series of a class has a larger prediction than one of another class; ties count half (Hanley
    and McNeil 1982). The interval is as in `r_squared`; a resample without a class leaves its column out.
    """
    counts = _resamples(len(targets), seed)
    values, draws = [], []
    for one_target, one_prediction in zip(targets.T, np.moveaxis(predicted, 2, 0), strict=True):
        positive = one_target > 0
        # [positive, negative]: 1 where the positive one is larger, 1/2 for a tie.
        order = np.mean([(np.sign(row[positive][:, None] - row[~positive]) + 1) / 2 for row in one_prediction], axis=0)
        values.append(order.mean())
        weights, others = counts[:, positive], counts[:, ~positive]
        pairs = weights.sum(axis=1) * others.sum(axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            draws.append(((weights @ order) * others).sum(axis=1) / pairs)
    with warnings.catch_warnings():
        # A resample may be without any pair.
        warnings.simplefilter("ignore", RuntimeWarning)
        low, high = np.nanquantile(np.nanmean(draws, axis=0), [0.025, 0.975]).tolist()
    return ProbeScore(float(np.mean(values)), low, high)


@functools.lru_cache(maxsize=8)
def _resamples(count: int, seed: int) -> np.ndarray:
    """Return how often each series is drawn in each of RESAMPLES resamples; the same for all probes."""
    return draw_counts(np.random.default_rng(seed), RESAMPLES, count)
