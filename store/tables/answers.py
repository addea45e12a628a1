"""Meanings of view columns that no table has, or that have another meaning in a view than in a table."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tsfmscope.store.schema import TABLES
from tsfmscope.store.tables.columns import IDENTITY, LAYER, NORMED, SEED, STACK, STAGE

_SPEARMAN = "rank correlation of isotropy with log NMSE; negative: more isotropic, less error (science.md 10)"
_SHARE = "part of a Jacobian's bound that its norm reaches; above 1 the bound fails [ratio]"
# Column name -> meaning, in any view that does not define its own in OWN.
MEANINGS: Mapping[str, str] = {
    **{column.name: column.comment for column in (*IDENTITY, STACK, LAYER, NORMED, SEED, STAGE)},
    "study": "study that asked for the rows, by its name in params",
    "n": "units of model, data set and condition (or of their pairs) with both values [units]",
    "n_null": "units without a value, left out [units]",
    "n_cells": "data sets and conditions that a mean is over [cells]",
    "n_models": "models among the units [models]",
    "n_datasets": "data sets among the units [data sets]",
    "run": "start of the run that the jobs are of",
    "busy_seconds": "time in jobs and loads that no earlier job of the actor covers [s]",
    "measure": "isotropy measure, or what else is compared",
    "n_windows": "windows scored [windows]",
    "n_windows_null": "windows without a score, left out [windows]",
    "n_seeds": "seeds [seeds]",
    "low": "lower end of the interval of the estimate",
    "high": "upper end of the interval of the estimate",
    "method": "how p was made",
    "reason": "why a number of the row is null",
    "spearman": _SPEARMAN,
    "pearson": "linear correlation of isotropy with log NMSE",
    "kendall": "Kendall's tau-b of isotropy with log NMSE (science.md 10)",
    "isotropy": "the measure with one sign: larger is more isotropic",
    "value": "the measure as it is defined",
    "log_nmse": "log of the mean NMSE over windows, floored [nats] (science.md 5)",
    "nmse": "mean NMSE over windows (science.md 5)",
    "nmse_median": "median NMSE over windows (science.md 5)",
    "nmse_pooled": "squared error over all windows by their squared distance from the context's mean (science.md 5)",
    "nmse_floor": "NMSE below which log NMSE no longer falls",
    "n_context_min": "fewest observed steps of context of a window that was forecast [steps]",
    "n_context_median": "median observed steps of context of the windows that were forecast [steps]",
    "is_filled": "whether the longest series has as many steps before its horizon as the context asks for",
    "context_longest": "steps that the longest series that was forecast has before its horizon [steps]",
    "n_unfilled": "units, pairs or candidates with a context that no series fills [units]",
    "is_floored": "whether the NMSE lies below the floor",
    "mean_change": "mean change from one condition or data set of the pair to the other",
    "pair": "the two data sets, conditions or schedules that are compared",
    "n_ties": "units in which the two are equal; each counts one half [units]",
    "estimate": "share of units in which it is so, or correlation",
    "epsilon": "share of the variance, or tolerance relative to the largest singular value",
    "effective_dimension": "dimensions that hold a share epsilon of the variance [dimensions] (isotropy.md 4.1)",
    "width": "width d of the states, or columns of the matrix [dimensions]",
    "depth": "place of the layer in its stack, from 0 to 1",
    "below_noise_floor": "whether epsilon lies below what rounding leaves of the spectrum (science.md 1)",
    "numerical_rank": "singular values above epsilon of the largest [dimensions] (rank_structure.md eq. 1)",
    "share": "numerical rank by the most that the matrix' shape allows [share]",
    "full_rank": "the most that the matrix' shape allows [dimensions]",
    "heads": "attention heads of the block, or the schedule of their ranks (JSON)",
    "tokens": "which tokens the rows are: those that stand for values, or all that the model is given",
    "wql": "quantile losses of all windows over levels times the sum of |targets| (Ansari et al. 2024, Appendix D)",
    "wql_window_mean": "mean over windows of their own WQL, without windows whose targets are all 0",
    "n_null_wql": "windows without a WQL of their own: all targets 0, or no forecast [windows]",
    "wql_ratio": "WQL (pooled over windows) over the base's, geometric mean over cells [ratio] (science.md 5)",
    "mase_ratio": "MASE over the base's, geometric mean over cells [ratio] (science.md 5)",
    "verdict": "agrees, differs or undecided, by the interval; not comparable where ours is another thing",
}
# View -> column name -> meaning, for that view alone.
OWN: Mapping[str, Mapping[str, str]] = {
    "advice_regret": {
        "grouping": "what is chosen: the model, the context of each model, or both at once",
        "rule": "how: the most isotropic, the least error on the window before, the largest context, by chance",
        "n": "data sets with the rule's choice, and the advice's [data sets]",
        "n_choices": "choices: one a data set, or one for each of its conditions or models [choices]",
        "n_candidates": "candidates of all choices [candidates]",
        "regret": "log NMSE of what is chosen less that of the best in hindsight, mean over data sets [nats]",
        "ratio": "exp of it: NMSE over the best's, geometric mean [ratio]",
        "advised_less": "the advice's regret less the rule's, mean over data sets; negative: it is better [nats]",
        "advised_less_low": "lower end of its interval [nats]",
        "advised_less_high": "upper end of its interval [nats]",
        "p_models": "p of advised_less of chance, models changing places in all data sets at once",
        "advice_is": "better or worse than the rule where interval and p agree on it, else undecided",
        "method_models": "how p_models was made",
    },
    "compression_frontier": {
        "method": "how it was compressed, as in table compression",
        "error": "error of the compressed attention, relative, as its method measures it",
        "time_ratio": "seconds of warm forecast jobs over the base's of one run and device, geometric mean [ratio]",
        "compression_seconds": "wall-clock time of the compression [s]",
    },
    "compression_loss": {
        "method": "how it was compressed, as in table compression",
        "estimate": "the score's ratio to the base's [ratio]; of overlap its slope against log2 of the share left",
        "test": "how p was made",
    },
    "correlation": {
        "n_blocks": "blocks (data sets, models or cells) that the mean is over [blocks]",
        "n_blocks_undefined": "blocks with too few units, or without any spread [blocks]",
        "n_floored": "units whose NMSE lies below the floor [units]",
        "double_centred": "correlation after the means of data sets and of models are taken off (science.md 10)",
        "double_centred_p": "its p, whole data sets changing places",
        "double_centred_p_bh": "the same after Benjamini-Hochberg",
        "double_centred_p_by": "the same after Benjamini-Yekutieli",
        "double_centred_method": "how that p was made",
        "evidence": "what the grouping may be taken for",
    },
    "flow_against_flat": {"ratio": "the first's score over the second's, geometric mean over seeds [ratio]"},
    "forecast_scores": {
        "is_baseline": "whether it is a local baseline, fitted anew on every series",
        "method": "how it was compressed, where it was",
        "wql_ratio": "pooled WQL over probabilistic seasonal naive's, geometric mean over cells [ratio] (science.md 5)",
        "mase_ratio": "MASE over probabilistic seasonal naive's, geometric mean over cells [ratio] (science.md 5)",
    },
    "pretrained_loss": {
        "line": "models of one recipe with narrow heads, whatever their seeds",
        "ratio": "the score over that of the dense model of the same seed, geometric mean [ratio]",
    },
    "options_effect": {
        "options": "how the model is read, where not as its files say (JSON)",
        "base_options": "how the base is read, where not as its files say (JSON)",
        "n_mase": "data sets and conditions that mase_ratio is over [cells]",
        "n_states": "data sets and conditions with isotropy of both [cells]",
        "isotropy_change": "mean decrease of |zeta_adjusted_corrected| from the base; above 0: more isotropic",
    },
    "head_ranks": {
        "head_width": "the most that a head's matrix allows [dimensions]",
        "head_rank": "mean numerical rank of the heads' matrices [dimensions] (rank_structure.md Fig. 9)",
        "head_rank_low": "smallest numerical rank of a head [dimensions]",
        "head_rank_high": "largest numerical rank of a head [dimensions]",
        "head_share": "mean share of its width that a head's rank is [share]",
        "whole_rank": "numerical rank of all heads' matrices as one [dimensions]",
        "whole_share": "the same by the most that its shape allows [share]",
    },
    "idle_share": {
        "jobs": "jobs [jobs]",
        "failed": "jobs that failed [jobs]",
        "actor": "Ray actor; null: all together",
        "actors": "actors that lived at once [actors]",
        "span_seconds": "from the first job to the end of the last [s]",
        "idle_share": "1 - busy / (actors x span) [share]",
        "loading_share": "time spent loading models by time spent in jobs and loads [share]",
        "outside_seconds": "of the run before its first job and after its last [s]",
    },
    "isotropy_by_rank": {"method": "how it was compressed, or none"},
    "lemma1": {
        "n": "heads and windows with a norm [instances]",
        "n_null": "those without [instances]",
        "n_tokens": "tokens of an instance [tokens]",
        "printed_violations": "instances in which the bound fails as printed [instances] (isotropy.md Lemma 1)",
        "appendix_violations": "the same with N added, as in its proof [instances] (isotropy.md Appendix B)",
        "safe_violations": "the same of what is proved: none [instances] (science.md 2)",
        "printed_largest_share": f"largest {_SHARE}",
        "appendix_largest_share": f"largest {_SHARE}",
        "safe_largest_share": f"largest {_SHARE}",
        "safe_median_share": f"median {_SHARE}",
        "norm_largest": "largest spectral norm of a Jacobian",
    },
    "mixed_model": {
        "n_datasets": "data sets, whose effects are random [data sets]",
        "isotropy_sd": "standard deviation of isotropy over the units",
        "slope": "change of log NMSE with one s.d. of isotropy [nats per s.d.] (science.md 10)",
    },
    "partition_spread": {
        "nmse": "mean NMSE over windows (science.md 5)",
        "reason": "why log Z is null",
    },
    "published_vs_measured": {
        "note": "why there is no interval, or what else belongs to the number",
        "run": "what to run for the paper's own number",
        "figure": "figure, table or section of a paper",
        "claim": "what the paper says, or the number that it prints",
        "source": "where in the paper it stands",
        "quantity": "what is compared",
        "published": "the printed number; null of a claim in words",
        "published_text": "the number as it is printed, or the side that a claim asks for",
        "measured": "ours",
        "comparable": "whether our model and data are the paper's own",
        "why": "why they are not comparable, or what is lacking",
        "n": "units that ours is made of [units]",
    },
    "rank_tests": {"estimate": "mean, difference (series less other data) or slope"},
    "sign_test": {"share": "share of units in which the more isotropic one has less error (science.md 10)"},
    "skipped_summary": {
        "n_series": "series among them that are named, the first 20 of a data set at most [series]",
        "n": "how many things were left out",
    },
    "spectral_alignment": {
        "n_dumps": "data sets and conditions [dumps]",
        "n": "heads of them all with an overlap, or without [heads]",
        "n_null": "heads without an overlap [heads]",
        "query": "mean overlap of W_Q's row space with the leading directions [share] (isotropy.md Theorem 2)",
        "key": "mean overlap of W_K's row space with the leading directions [share] (isotropy.md Theorem 2)",
        "query_z": "overlap of W_Q less chance, by chance's standard deviation; mean",
        "key_z": "overlap of W_K less chance, by chance's standard deviation; mean",
        "query_share_above": "share of heads with an overlap of W_Q over chance by two standard deviations [share]",
        "key_share_above": "share of heads with an overlap of W_K over chance by two standard deviations [share]",
    },
    "spectral_decay": {
        "what": "input, weight or embedding",
        "head": "head, from 0; null of a whole matrix",
        "n_above_floor": "singular values above what rounding leaves [values]",
        "power": "slope of ln(sigma_j / sigma_1) against ln j (rank_structure.md Theorem 1)",
        "power_r2": "share of the variance that a power law explains",
        "rate": "slope of ln(sigma_j / sigma_1) against j (rank_structure.md Theorem 1)",
        "rate_r2": "share of the variance that an exponential explains",
        "stable_rank": "sum of squared singular values over the largest square [dimensions]",
    },
    "svd_compression": {
        "whose": "published or measured",
        "method": "how it was compressed, as in table compression",
    },
    "theory_slopes": {
        "slope": "mean over seeds of the slope of ln y against ln x",
        "points_a_seed": "points that a seed's slope is fitted to [points]",
        "least": "smallest slope of a seed",
        "largest": "largest slope of a seed",
        "claimed": "slope that the paper says or implies (rank_structure.md Appendix J)",
    },
    "theory_violations": {
        "n": "random instances, or points of an experiment [instances]",
        "kind": "instance of a theorem, or point of an experiment",
        "violations": "of them those in which the bound fails [instances]",
        "ratio_median": "median part of the bound that is used up [ratio]",
        "ratio_largest": "largest part of the bound that is used up; above 1 it fails [ratio]",
        **{
            f"worst_{name}": f"{name} of the instance with the largest ratio" for name in ("seed", "instance", "x", "y")
        },
        "worst_bound": "bound of the instance with the largest ratio",
        "worst_setting": "what that instance was drawn with (JSON)",
    },
    "timeline": {
        "began": "start of the job's load, after that of the run's first job [s]",
        "ended": "end of the job, after the start of the run's first [s]",
    },
    "training_runs": {
        "steps_done": "optimiser steps done [steps]",
        "loss": "training loss at the last logged step [the family's own]",
        "lowest_loss": "lowest logged training loss [the family's own]",
        "heads": "schedule of ranks of the heads, if any (JSON)",
    },
    "vector_angles": {
        "what": "tokens: embedded tokens of one window; rows: of a weight; gaussian: i.i.d. vectors",
        "matrix": "of rows: the matrix, such as q",
        "dimension": "of the vectors [dimensions]",
        "pairs": "of one head, of two heads, or all where there are none",
        "n_pairs": "pairs of vectors [pairs]",
        "mean_angle": "mean angle [degrees] (rank_structure.md eq. 2)",
        "low_angle": "5 % of the angles lie below [degrees]",
        "high_angle": "5 % of the angles lie above [degrees]",
    },
    "weight_ranks": {"heads": "heads of the block [heads]"},
}


def meaning(view: str, column: str, reads: Collection[str]) -> str | None:
    """Return the meaning of a column of a view, or None if none is defined.

    reads: names of the tables that the view reads; a column of the same name in one of them is the last
    resort.
    """
    if said := OWN.get(view, {}).get(column) or MEANINGS.get(column):
        return said
    holding = [one for name, table in TABLES.items() if name in reads for one in table.columns if one.name == column]
    return holding[0].comment if holding else None
