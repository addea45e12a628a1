"""A mixed model of log NMSE on isotropy: a sensitivity check of the permutation tests, on other assumptions."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from tasks.statistics.ranks import complete

FEWEST_DATASETS = 5  # levels that a variance between data sets can be had from


@dataclass(frozen=True)
class Slope:
    """Change of log NMSE, in nats, with one standard deviation of isotropy; NaN with the reason where it failed."""

    estimate: float
    low: float
    high: float
    p: float
    n: int
    datasets: int
    method: str
    reason: str | None = None


def fit(
    isotropy: Float[np.ndarray, "dataset model condition"],
    log_nmse: Float[np.ndarray, "dataset model condition"],
    *,
    alpha: float = 0.05,
) -> Slope:
    """log NMSE = slope x isotropy / s.d. + its data set's mean + model + condition + (data set) + (data set x model).

    The mean (Mundlak 1978) leaves to the slope what happens inside data sets: without it, difficulty that moves
    isotropy and error alike would look like an effect. Data set x model stands where conditions repeat it.
    Terms in parentheses are random, as variance components of one group, since data sets cross models (statsmodels
    MixedLM); models and conditions are fixed: five levels are too few for a variance (science.md 10). REML, Wald
    interval and p. A fit that fails or does not converge is a reason, never an error.
    """
    there = complete(isotropy, log_nmse)
    dataset, model, condition = np.nonzero(there)
    x, y = isotropy[there], log_nmse[there]
    n, levels = len(x), len(np.unique(dataset))
    slopeless = _why_not(x, y, levels)
    x = x / x.std() if n and x.std() > 0 else x
    fixed = [x, np.ones(n), *_means(x, dataset), *_dummies(model)[1:], *_dummies(condition)[1:]]
    exog = np.column_stack(fixed) if n else np.zeros((0, 2))
    if slopeless is None and np.linalg.matrix_rank(exog) < exog.shape[1]:
        slopeless = "inside data sets isotropy says no more than model and condition"
    if slopeless is None and n <= exog.shape[1] + 2:
        slopeless = f"{n} units for {exog.shape[1]} fixed effects"
    components = {"data set": np.column_stack(_dummies(dataset)) if n else np.zeros((0, 0))}
    crossed = dataset * (int(model.max(initial=0)) + 1) + model
    if n > len(np.unique(crossed)):  # else it cannot be told from the error
        components["data set x model"] = np.column_stack(_dummies(crossed))
    method = (
        f"mixed model (REML, Wald); random: {', '.join(components)}; fixed: model, condition, data set's mean isotropy"
    )
    none = Slope(math.nan, math.nan, math.nan, math.nan, n, levels, method, slopeless)
    return none if slopeless else _fitted(none, y, exog, components, alpha)


def _fitted(none: Slope, y: np.ndarray, exog: np.ndarray, components: dict[str, np.ndarray], alpha: float) -> Slope:
    from dataclasses import replace

    from scipy import stats
    from statsmodels.regression.mixed_linear_model import MixedLM, VCSpec

    names = list(components)
    columns = [[[f"{name} {n}" for n in range(components[name].shape[1])]] for name in names]
    spec = VCSpec(names, columns, [[components[name]] for name in names])
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # on the boundary, singular, not converged: what is left is judged below
        try:
            found = MixedLM(y, exog, groups=np.zeros(len(y)), exog_vc=spec).fit(reml=True, method=["lbfgs", "bfgs"])
            slope, error = float(found.fe_params[0]), float(found.bse_fe[0])
        except (np.linalg.LinAlgError, ValueError, FloatingPointError, ZeroDivisionError) as failed:
            return replace(none, reason=f"mixed model failed: {failed}")
    if not found.converged:
        return replace(none, reason="mixed model did not converge")
    if not (math.isfinite(slope) and math.isfinite(error) and error > 0):
        return replace(none, reason="mixed model has no standard error of the slope")
    wide = float(stats.norm.isf(alpha / 2)) * error
    p = 2 * float(stats.norm.sf(abs(slope / error)))
    return replace(none, estimate=slope, low=slope - wide, high=slope + wide, p=p)


def _why_not(x: np.ndarray, y: np.ndarray, levels: int) -> str | None:
    if levels < FEWEST_DATASETS:
        return f"{levels} data sets with units, needs {FEWEST_DATASETS}"
    constant = [name for name, values in (("isotropy", x), ("log NMSE", y)) if np.ptp(values) == 0]
    return f"{' and '.join(constant)} constant" if constant else None


def _means(x: np.ndarray, dataset: np.ndarray) -> list[np.ndarray]:
    """The mean of x over each unit's data set, centred, as a column; none where all data sets have the same."""
    if not len(x):
        return []
    means = (np.bincount(dataset, weights=x) / np.maximum(np.bincount(dataset), 1))[dataset]
    return [means - means.mean()] if np.ptp(means) > 1e-9 else []


def _dummies(levels: np.ndarray) -> list[np.ndarray]:
    """One 0/1 column a level that occurs."""
    return [(levels == level).astype(float) for level in np.unique(levels)]
