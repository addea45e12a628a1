"""Mixed model of log NMSE on isotropy: a sensitivity check of the permutation tests under other assumptions."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from tsfmscope.statistics.ranks import complete

# Minimum number of data sets for an estimate of the variance between them.
FEWEST_DATASETS = 5


@dataclass(frozen=True)
class Slope:
    """Change of log NMSE, in nats, per standard deviation of isotropy.

    The numbers are NaN, with a reason, where the fit failed.
    """

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
    """Fit a mixed model of log NMSE on isotropy.

        log NMSE = slope x isotropy / s.d. + mean isotropy of the data set + model + condition
            + (data set) + (data set x model)

    Terms in parentheses are random, as variance components of one group, because data sets and models are
    crossed (statsmodels MixedLM). Models and conditions are fixed effects, because they have too few levels
    for a variance. The term data set x model is included where conditions repeat it.

    The data set's mean isotropy (Mundlak 1978) leaves only differences within data sets to the slope. Without
    it, a difficulty that changes isotropy and error together would look like an effect. Estimates by REML;
    interval and p by Wald. Units without both values are left out. A fit that fails or does not converge
    gives a reason, never an error.
    """
    is_complete = complete(isotropy, log_nmse)
    dataset, model, condition = np.nonzero(is_complete)
    x, y = isotropy[is_complete], log_nmse[is_complete]
    n, levels = len(x), len(np.unique(dataset))
    slopeless = f"{levels} data sets with units, needs {FEWEST_DATASETS}" if levels < FEWEST_DATASETS else None
    constant = [name for name, values in (("isotropy", x), ("log NMSE", y)) if n and np.ptp(values) == 0]
    if slopeless is None and constant:
        slopeless = f"{' and '.join(constant)} constant"
    x = x / x.std() if n and x.std() > 0 else x
    # The mean of x over each unit's data set, unless all data sets have the same mean.
    means = (np.bincount(dataset, weights=x) / np.maximum(np.bincount(dataset), 1))[dataset]
    centred = [means - means.mean()] if n and np.ptp(means) > 1e-9 else []
    fixed_effects = [x, np.ones(n), *centred, *_dummies(model)[1:], *_dummies(condition)[1:]]
    exog = np.column_stack(fixed_effects) if n else np.zeros((0, 2))
    if slopeless is None and np.linalg.matrix_rank(exog) < exog.shape[1]:
        slopeless = "inside data sets isotropy says no more than model and condition"
    if slopeless is None and n <= exog.shape[1] + 2:
        slopeless = f"{n} units for {exog.shape[1]} fixed effects"
    components = {"data set": np.column_stack(_dummies(dataset)) if n else np.zeros((0, 0))}
    pairs = dataset * (int(model.max(initial=0)) + 1) + model
    # Without repetitions, this term cannot be separated from the error.
    if n > len(np.unique(pairs)):
        components["data set x model"] = np.column_stack(_dummies(pairs))
    method = (
        f"mixed model (REML, Wald); random: {', '.join(components)}; fixed: model, condition, data set's mean isotropy"
    )
    undefined = Slope(math.nan, math.nan, math.nan, math.nan, n, levels, method, slopeless)
    return undefined if slopeless else _fit_slope(undefined, y, exog, components, alpha)


def _fit_slope(
    undefined: Slope, y: np.ndarray, exog: np.ndarray, components: dict[str, np.ndarray], alpha: float
) -> Slope:
    from dataclasses import replace

    from scipy import stats
    from statsmodels.regression.mixed_linear_model import MixedLM, VCSpec

    names = list(components)
    columns = [[[f"{name} {n}" for n in range(components[name].shape[1])]] for name in names]
    spec = VCSpec(names, columns, [[components[name]] for name in names])
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        # Warnings (boundary, singular, not converged) are silenced; the results are checked below.
        warnings.simplefilter("ignore")
        try:
            result = MixedLM(y, exog, groups=np.zeros(len(y)), exog_vc=spec).fit(reml=True, method=["lbfgs", "bfgs"])
            slope, error = float(result.fe_params[0]), float(result.bse_fe[0])
        except (np.linalg.LinAlgError, ValueError, FloatingPointError, ZeroDivisionError) as failed:
            return replace(undefined, reason=f"mixed model failed: {failed}")
    if not result.converged:
        return replace(undefined, reason="mixed model did not converge")
    if not (math.isfinite(slope) and math.isfinite(error) and error > 0):
        return replace(undefined, reason="mixed model has no standard error of the slope")
    half_width = float(stats.norm.isf(alpha / 2)) * error
    p = 2 * float(stats.norm.sf(abs(slope / error)))
    return replace(undefined, estimate=slope, low=slope - half_width, high=slope + half_width, p=p)


def _dummies(levels: np.ndarray) -> list[np.ndarray]:
    """Return one 0/1 column per level that occurs."""
    return [(levels == level).astype(float) for level in np.unique(levels)]
