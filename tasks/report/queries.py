"""SQL queries of the page, on the tables and views of results.duckdb."""

from __future__ import annotations

from tsfmscope.tasks.report.query import EPSILON, Query, filled
from tsfmscope.tasks.report.run_queries import RUN_QUERIES


def _points(title: str, figure: str) -> Query:
    """Return the query for one experiment of Yu et al. 2026, Appendix J: median and range over seeds."""
    return Query(
        title,
        f"""select
    experiment,
    heads,
    x,
    median(y) as y,
    min(y) as low,
    max(y) as high,
    count(*) as n
from theory
where starts_with(experiment, '{figure}')
group by all
order by experiment, heads, x""",
    )


QUERIES: dict[str, Query] = {
    "printed": Query(
        "Published numbers beside ours",
        """select
    figure,
    claim,
    source,
    model,
    dataset,
    condition,
    quantity,
    published,
    published_text,
    measured,
    low,
    high,
    n,
    p,
    comparable,
    verdict,
    why,
    note,
    run
from published_vs_measured
where published is not null""",
    ),
    "scope": Query(
        "What was studied",
        """select
    count(distinct model) as models,
    count(distinct dataset) as datasets,
    count(distinct condition) as conditions,
    count(nmse) as forecasts, -- those with a score
    count(distinct (dataset, series)) filter (where nmse is not null) as series
from forecasts
anti join baselines
    on baselines.model = forecasts.model
where study = {study}""",
    ),
    "advice": Query(
        "What is advice by isotropy worth?",
        """select
    measure,
    "grouping",
    rule,
    n,
    n_candidates,
    n_unfilled,
    exp(regret) as times,
    exp(low) as low,
    exp(high) as high,
    exp(advised_less) as advice_over_it,
    exp(advised_less_low) as advice_over_it_low,
    exp(advised_less_high) as advice_over_it_high,
    p,
    p_bh,
    p_models,
    advice_is
from advice_regret
where study = {study}""",
    ),
    "correlation": Query(
        "Does isotropy go with lower error?",
        """select
    measure,
    "grouping",
    n,
    n_blocks,
    spearman,
    low,
    high,
    p,
    p_bh,
    double_centred_p,
    detectable,
    reason,
    evidence
from correlation
where study = {study}""",
    ),
    "nmse_against_isotropy": Query(
        "Forecast error against isotropy",
        """select
    model,
    dataset,
    condition,
    any_value(value) filter (where measure = 'zeta_adjusted_corrected') as zeta_adjusted_corrected,
    any_value(value) filter (where measure = 'zeta_adjusted') as zeta_adjusted, -- as printed in the paper
    any_value(nmse) as nmse,
    any_value(nmse_median) as nmse_median,
    any_value(nmse_pooled) as nmse_pooled,
    any_value(n_windows) as n_windows
from nmse_against_isotropy
where study = {study}
group by model, dataset, condition
order by model, dataset, condition""",
    ),
    "alignment": Query(
        "Do heads look along the leading directions of what they read?",
        """select
    model,
    stack,
    layer,
    n,
    n_null,
    chance,
    query,
    key,
    query_z,
    key_z,
    query_share_above,
    key_share_above,
    inverse_cosine,
    reason
from spectral_alignment
order by model, stack, layer""",
    ),
    "partition": Query(
        "Is the softmax head's partition function stable?",
        """select
    model,
    dataset,
    condition,
    n_positions,
    log_z_mean,
    log_z_sd,
    log_z_range,
    zeta_adjusted_corrected,
    zeta_adjusted,
    log_isotropy_scaled,
    nmse,
    reason
from partition_spread
where study = {study}
order by model, dataset, condition""",
    ),
    "lemma1": Query(
        "Does Lemma 1 bound attention's Jacobian?",
        """select
    model,
    stack,
    n_tokens,
    n,
    n_null,
    printed_violations,
    appendix_violations,
    safe_violations,
    printed_largest_share,
    safe_largest_share,
    reason
from lemma1
order by model, stack, n_tokens""",
    ),
    "theory_compression": _points("Compressing attention on low-rank inputs", "J.1"),
    "theory_sketch": _points("Sketching with sparse heads", "J.2"),
    "theory_flow": _points("Flow of ranks against the number of heads", "J.3"),
    "theory_slopes": Query("Slopes", "select *\nfrom theory_slopes\norder by experiment"),
    "theory_violations": Query(
        "The theorems at random instances", "select *\nfrom theory_violations\norder by kind, experiment, form"
    ),
    **RUN_QUERIES,
}


STUDY_QUERIES: dict[str, Query] = {
    "points": Query(
        "Forecast error against isotropy",
        """select
    points.model,
    points.dataset,
    datasets.domain,
    datasets.paper,
    datasets.stands_in_for,
    points.condition,
    any_value(points.value) filter (where points.measure = 'zeta_adjusted_corrected') as zeta_adjusted_corrected,
    any_value(points.value) filter (where points.measure = 'zeta_adjusted') as zeta_adjusted, -- as printed in the paper
    any_value(points.nmse) as nmse,
    any_value(points.n_windows) as n_windows
from nmse_against_isotropy as points
left join datasets
    on datasets.dataset = points.dataset
where points.study = {study}
group by points.model, points.dataset, datasets.domain, datasets.paper, datasets.stands_in_for, points.condition
order by points.model, points.dataset, points.condition""",
    ),
    "layers": Query(
        "Effective dimension by layer",
        """select
    found.model,
    checkpoints.family,
    found.stack,
    found.layer,
    found.normed,
    found.epsilon,
    median(found.effective_dimension) as median,
    min(found.effective_dimension) as low,
    max(found.effective_dimension) as high,
    count(*) as n
from effective_dimension as found
inner join checkpoints
    on checkpoints.model = found.model
where found.study = {study}
    and found.epsilon = {epsilon}
group by all
order by found.model, found.stack, found.layer, found.normed""",
    ),
    "published": Query(
        "What the paper says, and what was measured",
        """select
    figure,
    claim,
    source,
    model,
    dataset,
    condition,
    quantity,
    published,
    published_text,
    measured,
    low,
    high,
    n,
    p,
    comparable,
    verdict,
    why,
    note,
    run
from published_vs_measured
where study = {study}""",
    ),
}


def queries(study: str) -> dict[str, Query]:
    """Return every query with the study name substituted, so that the SQL on the page runs unchanged."""
    return {name: filled(query, study) for name, query in QUERIES.items()}


def study_queries(study: str, *, epsilon: float = EPSILON) -> dict[str, Query]:
    """Return the queries of one study's section, with study name and epsilon substituted."""
    return {name: filled(query, study, epsilon) for name, query in STUDY_QUERIES.items()}
