-- Does isotropy predict forecasting error (with log NMSE floored at 1e-6; negative: more isotropic, better)?
-- p permutes whole models, in the same way in all data sets (grouping per_model: data sets, in all
-- models).
-- Models with a base_model (compressed, or read with other options) and snapshots are left out, because they are
-- not independent of it.
with measured as (
    select distinct study, measure
    from nmse_against_isotropy
),

units as (
    select
        study,
        measure,
        count(model) as n_own,
        count(model) filter (where isotropy is null or log_nmse is null) as n_null,
        count(model) filter (where is_floored) as n_floored,
        count(model) filter (where not is_filled) as n_unfilled
    from measured
    left join independent_units
        using (study, measure)
    group by all
),

groupings ("grouping", position, evidence) as (
    values
        ('within_dataset', 1, 'headline: mean over data sets, models recurring; several conditions add what they do to both'),
        ('per_model', 2, 'mean over models; data sets differ in difficulty'),
        ('per_dataset', 3, 'the headline with conditions held apart: mean over (data set, condition), across models only'),
        ('pooled', 4, 'no evidence: differences between data sets and models make it')
),

blocks as (
    select
        study,
        measure,
        "grouping",
        count(spearman) as n_blocks,
        count(*) - count(spearman) as n_blocks_undefined,
        avg(pearson) as pearson
    from correlation_blocks
    group by all
),

tests as (
    select *
    from inference
    where answer = 'correlation'
        and statistic = 'spearman'
),

centred as (
    select *
    from inference
    where answer = 'correlation'
        and statistic = 'double_centred'
),

final as (
    select
        study,
        measure,
        "grouping",
        coalesce(tests.n, 0) as n,
        coalesce(blocks.n_blocks, 0) as n_blocks,
        coalesce(blocks.n_blocks_undefined, 0) as n_blocks_undefined,
        units.n_null,
        units.n_floored,
        units.n_unfilled,
        tests.estimate as spearman,
        tests.low,
        tests.high,
        tests.p,
        tests.p_bh,
        tests.p_by,
        tests.n_tests,
        tests.p_smallest,
        tests.critical,
        tests.detectable,
        centred.estimate as double_centred,
        centred.p as double_centred_p,
        centred.p_bh as double_centred_p_bh,
        centred.p_by as double_centred_p_by,
        blocks.pearson,
        tests.method,
        tests.interval_method,
        centred.method as double_centred_method,
        nullif(
            concat_ws(
                '; ',
                tests.reason,
                case when centred.p is null then centred.reason end,
                case when units.n_own = 0 then 'every model is made from another' end
            ),
            ''
        ) as reason,
        tests.seed,
        groupings.evidence
    from units
    cross join groupings
    left join blocks
        using (study, measure, "grouping")
    left join tests
        using (study, measure, "grouping")
    left join centred
        using (study, measure, "grouping")
    order by study, measure, groupings.position
)

select * from final
