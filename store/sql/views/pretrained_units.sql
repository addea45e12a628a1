-- Which numbers do tests on models pretrained with narrow heads compare: log of score / dense model's score?
-- If a line has several seeds, a unit is a seed, and its value is the mean over data sets and
-- conditions. If it has a single seed, a unit is one data set and condition.
with losses as (
    select
        lines.study,
        lines.family,
        lines.line,
        lines.model,
        narrow.dataset,
        narrow.condition,
        count(distinct lines.model) over (partition by lines.study, lines.family, lines.line) as seeds,
        score.measure,
        score.value
    from pretrained_lines as lines
    inner join scores as narrow
        using (study, model)
    inner join scores as dense
        on dense.study = lines.study
        and dense.model = lines.base_model
        and dense.dataset = narrow.dataset
        and dense.condition = narrow.condition,
        lateral (
            values
                ('log WQL', ln(nullif(narrow.wql, 0)) - ln(nullif(dense.wql, 0))),
                ('log MASE', ln(nullif(narrow.mase_gluonts, 0)) - ln(nullif(dense.mase_gluonts, 0)))
        ) as score (measure, value)
),

final as (
    select
        study,
        'pretrained_loss' as answer,
        measure,
        family as "grouping",
        line as block,
        'mean' as statistic,
        null::varchar as sample,
        case when seeds > 1 then model else concat_ws(' ', dataset, condition) end as unit,
        null::double as x,
        avg(value) as value
    from losses
    group by all
)

select * from final
