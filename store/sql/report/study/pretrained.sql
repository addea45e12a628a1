-- Models pretrained with narrow heads, relative to the dense one of their seed, the paper's beside them
with scored as (
    select
        scores.model,
        scores.base_model,
        scores.rank,
        scores.dataset,
        scores.condition,
        scores.wql,
        scores.mase
    from scores
    where scores.study = $study
),

measured as (
    select
        'measured' as whose,
        checkpoints.family,
        regexp_replace(one.model, '[-_]?[0-9.]*[-_][0-9]+$', '') as line, -- names end in size and seed
        one.model,
        coalesce(
            list_filter(
                json_keys(any_value(checkpoints.heads)::json), lambda key: key not in ('factors', 'attention')
            )[1],
            'dense'
        ) as schedule,
        any_value(one.rank) as size,
        count(*) as n_cells,
        exp(avg(ln(nullif(one.wql, 0) / nullif(dense.wql, 0)))) as WQL,
        exp(avg(ln(nullif(one.mase, 0) / nullif(dense.mase, 0)))) as MASE
    from scored as one
    inner join scored as dense
        on dense.model = one.base_model
        and dense.dataset = one.dataset
        and dense.condition = one.condition
    inner join checkpoints
        on checkpoints.model = one.model
    group by
        checkpoints.family,
        one.model
),

ours as (
    unpivot measured
    on WQL, MASE
    into
        name quantity
        value value
),

figures as (
    select figure
    from studies
    where study = $study
)

select
    whose,
    family,
    line,
    model,
    schedule,
    size,
    quantity,
    value
from ours
union all by name
select
    'published' as whose,
    family,
    'printed, ' || line as line,
    null as model,
    case when line = 'flat' then 'flat' else 'flow' end as schedule,
    size,
    quantity,
    value
from published_pretrained
where figure in (select figure from figures)
    and first < 64
    and size is not null
order by quantity desc, family, whose, line, size, model
