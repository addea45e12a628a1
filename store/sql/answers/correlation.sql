-- Does isotropy predict forecasting error (with log NMSE floored at 1e-6; negative: more isotropic, better)?
-- p permutes whole models, in the same way in all data sets (grouping per_model: data sets, in all
-- models).
-- Models with a base_model (compressed, or read with other options) and snapshots are left out, because they are
-- not independent of it.
with measured as (
    select distinct
        study,
        measure
    from nmse_against_isotropy
),

units as (
    select
        measured.study,
        measured.measure,
        count(units.model) as n_own,
        count(units.model) filter (where units.isotropy is null or units.log_nmse is null) as n_null,
        count(units.model) filter (where units.is_floored) as n_floored,
        count(units.model) filter (where not units.is_filled) as n_unfilled
    from measured
    left join independent_units as units
        on units.study = measured.study
        and units.measure = measured.measure
    group by
        measured.study,
        measured.measure
),

groupings ("grouping", position, evidence) as (
    values
        ('within_dataset', 1, 'headline: mean over data sets, models recurring; several conditions add what they do to both'),
        ('per_model', 2, 'mean over models; data sets differ in difficulty'),
        ('per_dataset', 3, 'the headline with conditions held apart: mean over (data set, condition), across models only'),
        ('pooled', 4, 'no evidence: differences between data sets and models make it')
),

estimates as (
    select
        study,
        measure,
        "grouping",
        sum(n)::bigint as n,
        count(spearman) as n_blocks,
        count(*) - count(spearman) as n_blocks_undefined,
        avg(spearman) as spearman,
        avg(pearson) as pearson
    from correlation_blocks
    group by
        study,
        measure,
        "grouping"
),

final as (
    select
        units.study,
        units.measure,
        groupings."grouping",
        coalesce(estimates.n, 0) as n,
        coalesce(estimates.n_blocks, 0) as n_blocks,
        coalesce(estimates.n_blocks_undefined, 0) as n_blocks_undefined,
        units.n_null,
        units.n_floored,
        units.n_unfilled,
        estimates.spearman,
        tests.low,
        tests.high,
        tests.p,
        tests.p_bh,
        tests.p_by,
        tests.n_tests,
        tests.p_smallest,
        tests.critical,
        tests.detectable,
        case when groupings."grouping" = 'within_dataset' then centred.double_centred end as double_centred,
        centred_tests.p as double_centred_p,
        centred_tests.p_bh as double_centred_p_bh,
        centred_tests.p_by as double_centred_p_by,
        estimates.pearson,
        tests.method,
        tests.interval_method,
        centred_tests.method as double_centred_method,
        nullif(
            concat_ws(
                '; ',
                tests.reason,
                case when centred_tests.p is null then centred_tests.reason end,
                case when units.n_own = 0 then 'every model is made from another' end
            ),
            ''
        ) as reason,
        tests.seed,
        groupings.evidence
    from units
    cross join groupings
    left join estimates
        on estimates.study = units.study
        and estimates.measure = units.measure
        and estimates."grouping" = groupings."grouping"
    left join inference as tests
        on tests.answer = 'correlation'
        and tests.study = units.study
        and tests.measure = units.measure
        and tests."grouping" = groupings."grouping"
        and tests.statistic = 'spearman'
    left join correlation_centred as centred
        on centred.study = units.study
        and centred.measure = units.measure
    left join inference as centred_tests
        on centred_tests.answer = 'correlation'
        and centred_tests.study = units.study
        and centred_tests.measure = units.measure
        and centred_tests."grouping" = groupings."grouping"
        and centred_tests.statistic = 'double_centred'
    order by
        units.study,
        units.measure,
        groupings.position
)

select * from final
