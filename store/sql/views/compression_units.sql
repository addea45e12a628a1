-- Which numbers do tests on compressed models compare: per data set, log of score / original's score, minus log 1.05?
-- A value below 0 means a loss of less than 5 %, which counts as no loss. The number after the @ in a
-- measure is the share of the attention parameters that remain, rounded to 0.05. Trends are regressed
-- on the log2 of that share. The original model has x = 0 and overlap 1, because it shares all
-- tokens with itself.
with pairs as (
    select
        cut.study,
        cut.model,
        compression.method,
        compression.base_model,
        compression.attention_ratio as share,
        cut.dataset,
        cut.condition,
        ln(nullif(cut.wql, 0)) - ln(nullif(base.wql, 0)) as log_wql,
        ln(nullif(cut.mase_gluonts, 0)) - ln(nullif(base.mase_gluonts, 0)) as log_mase
    from scores as cut
    inner join compression
        on compression.model = cut.model
    inner join scores as base
        on base.study = cut.study
        and base.model = compression.base_model
        and base.dataset = cut.dataset
        and base.condition = cut.condition
),

losses as (
    select
        pairs.study,
        score.measure || '@' || format('{:g}', round(20 * pairs.share) / 20) as measure,
        pairs.method as "grouping",
        pairs.model as block,
        'mean' as statistic,
        concat_ws(' ', pairs.dataset, pairs.condition) as unit,
        null::double as x,
        score.value - ln(1.05) as value
    from pairs,
        lateral (
            values ('log WQL over 1.05', pairs.log_wql), ('log MASE over 1.05', pairs.log_mase)
        ) as score (measure, value)
),

kept as (
    select
        fidelity.study,
        compression.method,
        compression.base_model,
        fidelity.model,
        any_value(compression.attention_ratio) as share,
        avg(fidelity.overlap) as overlap
    from fidelity
    inner join compression
        on compression.model = fidelity.model
    where fidelity.overlap is not null
    group by all
),

originals as (
    select distinct
        study,
        method,
        base_model,
        base_model as model,
        1.0::double as share,
        1.0::double as overlap
    from kept
),

shares as (
    select
        study,
        'overlap' as measure,
        method as "grouping",
        base_model as block,
        'trend' as statistic,
        model as unit,
        log2(share) as x,
        overlap as value
    from (
        select * from kept
        union all by name
        select * from originals
    )
),

all_units as (
    select * from losses
    union all by name
    select * from shares
),

final as (
    select
        study,
        'compression_loss' as answer,
        measure,
        "grouping",
        block,
        statistic,
        null::varchar as sample,
        unit,
        x,
        value
    from all_units
)

select * from final
