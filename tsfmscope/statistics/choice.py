"""Choice among forecasters from their errors on one data set and their skill on other data sets.

Few series and few windows say little about which of several good forecasters is best. The skill on other data sets is
an estimate too. The estimate of this module is the posterior mean of each candidate's log error, given both.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

# Standard deviations, in log WQL, of a candidate between data sets and of a data set between windows: the pair out of
# 20 with the least WQL of the chosen model on 23 guided sets and the group `tune` (bench/choice.py, 2026-11-29). All
# pairs are within 4 %.
SPREAD = 0.15
DRIFT = 0.15


class Posterior(NamedTuple):
    """Estimated log error of each candidate, and its standard deviation."""

    mean: Float[np.ndarray, " candidate"]
    sd: Float[np.ndarray, " candidate"]


def pooled_log_errors(
    losses: Float[np.ndarray, "candidate series window"],
) -> tuple[Float[np.ndarray, " candidate"], Float[np.ndarray, "candidate candidate"]]:
    """Return the log of each candidate's summed losses, and the covariance of these logs between candidates.

    The covariance is that of drawing the series, and independently the windows, with replacement, to first order: for
    shares p of candidates c and d in the sum over series, sum_i (p_ci - 1/n) (p_di - 1/n), and likewise for windows.

    losses: quantile losses, at least 0; NaN where a window was not forecast. A candidate with fewer forecasts than the
    others is compared with their mean on its own windows: its sum is scaled by their sum on all windows over their sum
    on its windows. The log of a sum of 0 is -inf, with covariance 0. A candidate without a finite loss gives NaN.
    """
    losses = np.asarray(losses, dtype=np.float64)
    is_scored = np.isfinite(losses)
    filled = np.where(is_scored, losses, 0.0)
    # The candidates with the most forecasts stand for all windows.
    counts = is_scored.sum(axis=(1, 2))
    reference = filled[counts == counts.max()].mean(axis=0)  # [series, window]
    own = np.where(is_scored, reference, 0.0)  # [candidate, series, window]
    sums, own_sums, whole = filled.sum(axis=(1, 2)), own.sum(axis=(1, 2)), reference.sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        log_errors = np.log(sums) + np.where(own_sums == whole, 0.0, np.log(whole) - np.log(own_sums))
        shares = filled / sums[:, None, None] - own / own_sums[:, None, None] + reference / whole
    log_errors[counts == 0] = np.nan
    shares = np.where(np.isfinite(shares), shares, reference / whole if whole > 0 else 0.0)
    covariance = np.zeros((len(losses), len(losses)))
    for axis in (1, 2):
        parts = shares.sum(axis=axis)
        centred = parts - parts.mean(axis=1, keepdims=True)
        covariance += centred @ centred.T
    return log_errors, covariance


def combine(
    log_errors: Float[np.ndarray, " candidate"],
    covariance: Float[np.ndarray, "candidate candidate"],
    skill: Float[np.ndarray, " candidate"],
    *,
    n_windows: int,
    spread: float = SPREAD,
    drift: float = DRIFT,
) -> Posterior:
    """Return the posterior mean of each candidate's log error, and its standard deviation.

    log_errors = difficulty + skill + N(0, spread^2) + N(0, covariance + drift^2 / n_windows). The difficulty of the
    data set is common to all candidates and unknown, so `log_errors` and `skill` may be relative to any forecaster.

    Args:
        log_errors: log of the pooled error on this data set; -inf for no error. NaN is left out: the result is NaN.
        covariance: covariance of the log errors over resamples of series and windows.
        skill: mean log error on other data sets; NaN for a candidate without one, which gets the mean of the others.
        n_windows: number of windows (origins) per series.
        spread: standard deviation between data sets of a log error about the skill.
        drift: standard deviation between windows of a log error, which series of the same window share.
    """
    mean = np.array(log_errors, dtype=np.float64)
    sd = np.where(np.isnan(mean), np.nan, 0.0)
    used = np.flatnonzero(np.isfinite(mean))
    if not len(used):
        return Posterior(mean, sd)
    prior = np.asarray(skill, dtype=np.float64)[used]
    known = np.isfinite(prior)
    centre = prior[known].mean() if known.any() else 0.0
    # A skill that is not known is another source of spread: as much again.
    between = np.diag(np.where(known, spread**2, 2 * spread**2))
    prior = np.where(known, prior, centre)
    total = between + np.asarray(covariance)[np.ix_(used, used)] + np.eye(len(used)) * drift**2 / n_windows
    inverse = np.linalg.inv(total)
    rest = mean[used] - prior
    # Generalised least squares estimate of the difficulty.
    difficulty = inverse.sum(axis=0) @ rest / inverse.sum()
    weights = between @ inverse
    mean[used] = prior + difficulty + weights @ (rest - difficulty)
    sd[used] = np.sqrt(np.maximum(np.diag(between - weights @ between), 0.0))
    return Posterior(mean, sd)
