"""Meanings of view columns that no table has, or that have another meaning in a view than in a table."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from store.schema import TABLES
from store.tables.shared import IDENTITY, LAYER, NORMED, SEED, STACK, STAGE

_SPEARMAN = (
    "rank correlation of isotropy with log NMSE; negative if more isotropic cells have less error "
    "(docs/science.md, Correlation of isotropy and error)"
)
_SHARE = "ratio of a Jacobian's norm to its bound; above 1 the bound fails [ratio]"
# Column name -> meaning, in any view that does not define its own in OWN.
MEANINGS: Mapping[str, str] = {
    **{column.name: column.comment for column in (*IDENTITY, STACK, LAYER, NORMED, SEED, STAGE)},
    "study": "study that requested the rows, by its name in params",
    "n": "cells, or pairs of cells, with both values [units]",
    "n_null": "units without a value, which are left out [units]",
    "n_cells": "data sets and conditions in the mean [cells]",
    "n_models": "models of the units [models]",
    "n_datasets": "data sets of the units [data sets]",
    "run": "start of the run of the jobs",
    "busy_seconds": "time in jobs and loads, without overlaps with earlier jobs of the actor [s]",
    "measure": "isotropy measure, or another compared quantity",
    "n_windows": "scored windows [windows]",
    "n_windows_null": "windows without a score, which are left out [windows]",
    "n_seeds": "seeds [seeds]",
    "low": "lower end of the interval of the estimate",
    "high": "upper end of the interval of the estimate",
    "method": "method of the p-value",
    "reason": "reason for a null number of the row",
    "spearman": _SPEARMAN,
    "pearson": "linear correlation of isotropy with log NMSE",
    "kendall": "Kendall's tau-b of isotropy with log NMSE (docs/science.md, Correlation of isotropy and error)",
    "isotropy": "measure, with its sign chosen so that larger is more isotropic",
    "value": "measure, as it is defined",
    "log_nmse": "log of the mean NMSE over windows, at least log nmse_floor [nats] (docs/science.md, Error)",
    "nmse": "mean NMSE over windows (docs/science.md, Error)",
    "nmse_median": "median NMSE over windows (docs/science.md, Error)",
    "nmse_pooled": (
        "squared error of all windows divided by their squared distance from the mean of the context "
        "(docs/science.md, Error)"
    ),
    "nmse_floor": "NMSE below which log NMSE no longer falls",
    "n_context_min": "fewest observed context steps of a forecast window [steps]",
    "n_context_median": "median observed context steps of the forecast windows [steps]",
    "is_filled": "whether the longest series fills the requested context",
    "context_longest": "steps of the longest forecast series before its horizon [steps]",
    "n_unfilled": "units, pairs or candidates whose context no series fills [units]",
    "is_floored": "whether the NMSE lies below the floor",
    "mean_change": "mean change from the first condition or data set of the pair to the second",
    "pair": "compared data sets, conditions or schedules",
    "n_ties": "units with equal values; each counts one half [units]",
    "estimate": "share of units for which the statement holds, or correlation",
    "epsilon": "tolerance of the numerical rank, relative to the largest singular value",
    "variance_share": "share of the variance that the effective dimension holds [share]",
    "effective_dimension": (
        "fewest dimensions that hold the share of the variance [dimensions] (Shelim et al. 2025, section 4.1)"
    ),
    "width": "width d of the states, or columns of the matrix [dimensions]",
    "depth": "relative depth of the layer in its stack, from 0 to 1",
    "below_noise_floor": (
        "whether epsilon is below the rounding error of the spectrum (docs/science.md, Numerical rank)"
    ),
    "numerical_rank": "singular values above epsilon of the largest [dimensions] (Yu et al. 2026, eq. 1)",
    "share": "numerical rank divided by the largest possible rank [share]",
    "full_rank": "largest possible rank of the matrix [dimensions]",
    "heads": "attention heads of the block, or schedule of their ranks (JSON)",
    "tokens": "tokens of the rows: those of observations, or all tokens of the model input",
    "wql": (
        "quantile losses of all windows, divided by the number of levels times the sum of |targets| "
        "(Ansari et al. 2024, Appendix D)"
    ),
    "wql_window_mean": "mean of the WQL of each window, without windows whose targets are all 0",
    "n_null_wql": "windows without a WQL: all targets are 0, or no forecast [windows]",
    "wql_ratio": (
        "WQL (pooled over windows) divided by that of the original, geometric mean over cells [ratio] "
        "(docs/science.md, Error)"
    ),
    "mase_ratio": "MASE divided by that of the original, geometric mean over cells [ratio] (docs/science.md, Error)",
    "verdict": "verdict from the interval: agrees, differs, no effect or undecided; or not comparable, or not measured",
}
# View -> column name -> meaning, for that view alone.
OWN: Mapping[str, Mapping[str, str]] = {
    "hypothesis_tests": {
        "explored_estimate": "mean correlation on the exploring half of the data sets",
        "explored_p": "p of the correlation on the exploring half",
        "estimate": "mean correlation of isotropy with the error on the confirming half of the data sets",
        "verdict": "holds, reversed, no effect found, or not tested",
    },
    "population_correlation": {
        "error": "error: nmse or wql",
        "estimate": "mean correlation of isotropy with the error; negative: more isotropic, less error",
    },
    "advice_regret": {
        "grouping": "choice: the model, the context of each model, or both",
        "rule": "rule of the choice: most isotropic, least error on the previous window, largest context, or chance",
        "n": "data sets with choices of both the rule and the advice [data sets]",
        "n_choices": "choices: one per data set, or one per condition or model of a data set [choices]",
        "n_candidates": "candidates of all choices [candidates]",
        "regret": "log NMSE of the choice minus that of the best candidate, mean over data sets [nats]",
        "ratio": "exp of regret: NMSE divided by that of the best candidate, geometric mean [ratio]",
        "advised_less": (
            "regret of the advice minus regret of the rule, mean over data sets; negative if the advice is "
            "better [nats]"
        ),
        "advised_less_low": "lower end of the interval of advised_less [nats]",
        "advised_less_high": "upper end of the interval of advised_less [nats]",
        "p_models": "p-value of advised_less against chance, from permutations of models in all data sets at once",
        "advice_is": "better or worse than the rule if interval and p-value agree, else undecided",
        "method_models": "method of p_models",
    },
    "compression_frontier": {
        "method": "compression method, as in table compression",
        "error": "relative error of the compressed attention, in the norm of the method",
        "time_ratio": (
            "seconds of warm forecast jobs divided by those of the original in the same run, geometric mean [ratio]"
        ),
        "compression_seconds": "wall-clock time of the compression [s]",
    },
    "compression_loss": {
        "method": "compression method, as in table compression",
        "estimate": (
            "score divided by that of the original [ratio]; for overlap, slope against log2 of the remaining share"
        ),
        "test": "method of the p-value",
    },
    "correlation": {
        "n_blocks": "blocks (data sets, models or cells) in the mean [blocks]",
        "n_blocks_undefined": "blocks with too few units or without spread [blocks]",
        "n_floored": "units with an NMSE below the floor [units]",
        "double_centred": (
            "correlation after subtraction of the means of data sets and of models "
            "(docs/science.md, Correlation of isotropy and error)"
        ),
        "double_centred_p": "p-value of double_centred, from permutations of whole data sets",
        "double_centred_p_bh": "double_centred_p after Benjamini-Hochberg adjustment",
        "double_centred_p_by": "double_centred_p after Benjamini-Yekutieli adjustment",
        "double_centred_method": "method of double_centred_p",
        "evidence": "kind of evidence that the grouping gives",
    },
    "flow_against_flat": {
        "family": "model family",
        "ratio": "score of the first divided by that of the second, geometric mean over seeds [ratio]",
    },
    "forecast_scores": {
        "is_baseline": "whether the model is a local baseline, which is fitted to each series",
        "method": "compression method, if the model is compressed",
        "wql_ratio": (
            "pooled WQL divided by that of probabilistic seasonal naive, geometric mean over cells [ratio] "
            "(docs/science.md, Error)"
        ),
        "mase_ratio": (
            "MASE divided by that of probabilistic seasonal naive, geometric mean over cells [ratio] "
            "(docs/science.md, Error); the seasons stand in forecasts.season"
        ),
    },
    "pretrained_loss": {
        "family": "model family",
        "line": "models of one recipe with narrow heads, of all seeds",
        "ratio": "score divided by that of the dense model with the same seed, geometric mean [ratio]",
    },
    "options_effect": {
        "options": "loading options of the model that differ from its files (JSON)",
        "base_options": "loading options of the original that differ from its files (JSON)",
        "n_mase": "data sets and conditions in mase_ratio [cells]",
        "n_states": "data sets and conditions in which both models have an isotropy [cells]",
        "isotropy_change": "mean decrease of |zeta_adjusted_corrected| from the original; above 0: more isotropic",
    },
    "head_ranks": {
        "head_width": "largest possible rank of a head's matrix [dimensions]",
        "head_rank": "mean numerical rank of the heads' matrices [dimensions] (Yu et al. 2026, Fig. 9)",
        "head_rank_low": "smallest numerical rank of a head [dimensions]",
        "head_rank_high": "largest numerical rank of a head [dimensions]",
        "head_share": "mean over heads of rank divided by head width [share]",
        "whole_rank": "numerical rank of the matrix of all heads [dimensions]",
        "whole_share": "whole_rank divided by the largest possible rank [share]",
    },
    "idle_share": {
        "jobs": "jobs [jobs]",
        "failed": "failed jobs [jobs]",
        "actor": "Ray actor; null: all actors",
        "actors": "actors that existed at the same time [actors]",
        "span_seconds": "time from the start of the first job to the end of the last [s]",
        "idle_share": "1 - busy_seconds / (actors x span_seconds) [share]",
        "loading_share": "time in loads divided by time in jobs and loads [share]",
        "outside_seconds": "time of the run before its first job and after its last [s]",
    },
    "isotropy_by_rank": {"method": "compression method, or none"},
    "lemma1": {
        "n": "instances (heads and windows) with a norm [instances]",
        "n_null": "instances without a norm [instances]",
        "n_tokens": "tokens of an instance [tokens]",
        "printed_violations": "instances in which the bound fails as printed [instances] (Shelim et al. 2025, Lemma 1)",
        "appendix_violations": (
            "instances in which the bound with N, as in its proof, fails [instances] (Shelim et al. 2025, Appendix B)"
        ),
        "safe_violations": (
            "instances in which the bound that we prove fails; always 0 [instances] (docs/science.md, Lemma 1)"
        ),
        "printed_largest_share": f"largest {_SHARE}",
        "appendix_largest_share": f"largest {_SHARE}",
        "safe_largest_share": f"largest {_SHARE}",
        "safe_median_share": f"median {_SHARE}",
        "norm_largest": "largest spectral norm of a Jacobian",
    },
    "mixed_model": {
        "n_datasets": "data sets, which have random effects [data sets]",
        "isotropy_sd": "standard deviation of isotropy over the units",
        "slope": (
            "change of log NMSE per standard deviation of isotropy [nats per s.d.] "
            "(docs/science.md, Correlation of isotropy and error)"
        ),
    },
    "partition_spread": {
        "nmse": "mean NMSE over windows (docs/science.md, Error)",
        "reason": "reason for a null log Z",
    },
    "published_vs_measured": {
        "note": "reason for a missing interval, or both scores if the paper does not name the score",
        "run": "command to get a comparable number",
        "figure": "figure, table or section of a paper",
        "claim": "claim of the paper in words, or name of the printed number",
        "source": "place in the paper",
        "quantity": "compared quantity",
        "published": "printed number; null for a claim in words",
        "published_text": "number as it is printed, or side on which the claim holds",
        "measured": "measured value",
        "comparable": "whether model and data are those of the paper",
        "why": "reason for the verdict",
        "n": "units of the measured value [units]",
    },
    "rank_tests": {"estimate": "mean, difference (series minus other data) or slope"},
    "sign_test": {
        "share": (
            "share of units in which the more isotropic one has less error "
            "(docs/science.md, Correlation of isotropy and error)"
        )
    },
    "skipped_summary": {
        "n_series": "named series, at most the first 20 of a data set [series]",
        "n": "items that were left out",
    },
    "spectral_alignment": {
        "n_dumps": "data sets and conditions [dumps]",
        "n": "heads in all data sets and conditions, with or without an overlap [heads]",
        "n_null": "heads without an overlap [heads]",
        "query": "mean overlap of W_Q's row space with the leading directions [share] (Shelim et al. 2025, Theorem 2)",
        "key": "mean overlap of W_K's row space with the leading directions [share] (Shelim et al. 2025, Theorem 2)",
        "query_z": "mean of the overlap of W_Q minus chance, divided by the standard deviation of chance",
        "key_z": "mean of the overlap of W_K minus chance, divided by the standard deviation of chance",
        "query_share_above": "share of heads whose overlap of W_Q is two standard deviations above chance [share]",
        "key_share_above": "share of heads whose overlap of W_K is two standard deviations above chance [share]",
    },
    "spectral_decay": {
        "what": "kind of matrix: input, weight or embedding",
        "head": "head, from 0; null for a whole matrix",
        "n_above_floor": "singular values above the rounding error [values]",
        "power": "slope of ln(sigma_j / sigma_1) against ln j (Yu et al. 2026, Theorem 1)",
        "power_r2": "share of the variance that a power law explains",
        "rate": "slope of ln(sigma_j / sigma_1) against j (Yu et al. 2026, Theorem 1)",
        "rate_r2": "share of the variance that an exponential explains",
        "stable_rank": "sum of squared singular values divided by the largest square [dimensions]",
    },
    "svd_compression": {
        "whose": "origin of the number: published or measured",
        "method": "compression method, as in table compression",
    },
    "theory_slopes": {
        "slope": "mean over seeds of the slope of ln y against ln x",
        "points_a_seed": "points in the fit of one seed [points]",
        "least": "smallest slope of a seed",
        "largest": "largest slope of a seed",
        "claimed": "slope that the paper states or implies (Yu et al. 2026, Appendix J)",
    },
    "theory_violations": {
        "n": "random instances, or points of an experiment [instances]",
        "kind": "instance of a theorem, or point of an experiment",
        "violations": "instances in which the bound fails [instances]",
        "ratio_median": "median ratio of the value to its bound [ratio]",
        "ratio_largest": "largest ratio of the value to its bound; above 1 the bound fails [ratio]",
        **{
            f"worst_{name}": f"{name} of the instance with the largest ratio" for name in ("seed", "instance", "x", "y")
        },
        "worst_bound": "bound of the instance with the largest ratio",
        "worst_setting": "setting of the instance with the largest ratio (JSON)",
    },
    "timeline": {
        "began": "start of the job's load, counted from the start of the run's first job [s]",
        "ended": "end of the job, counted from the start of the run's first job [s]",
    },
    "training_runs": {
        "steps_done": "completed optimiser steps [steps]",
        "loss": "training loss at the last logged step [loss units of the family]",
        "lowest_loss": "lowest logged training loss [loss units of the family]",
        "heads": "schedule of head ranks, if any (JSON)",
    },
    "vector_angles": {
        "what": "tokens: embedded tokens of one window; rows: rows of a weight; gaussian: i.i.d. vectors",
        "matrix": "rows only: weight matrix, such as q",
        "dimension": "dimension of the vectors [dimensions]",
        "pairs": "kind of pairs: of one head, of two heads, or all if there are no heads",
        "n_pairs": "pairs of vectors [pairs]",
        "mean_angle": "mean angle [degrees] (Yu et al. 2026, eq. 2)",
        "low_angle": "5 % quantile of the angles [degrees]",
        "high_angle": "95 % quantile of the angles [degrees]",
    },
    "weight_ranks": {"heads": "heads of the block [heads]"},
}


def meaning(view: str, column: str, reads: Collection[str]) -> str | None:
    """Return the meaning of a column of a view, or None if none is defined.

    reads: names of the tables that the view reads; a column of the same name in one of them is the last
    resort.
    """
    if own := OWN.get(view, {}).get(column) or MEANINGS.get(column):
        return own
    columns = (other for name, table in TABLES.items() if name in reads for other in table.columns)
    return next((other.comment for other in columns if other.name == column), None)
