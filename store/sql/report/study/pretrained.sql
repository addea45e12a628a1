-- Models pretrained with narrow heads, relative to the dense model of their seed, with the paper's numbers
with study_scores as (
    select
        scores.model,
        scores.base_model,
        scores.size_parameter,
        scores.dataset,
        scores.condition,
        scores.wql,
        scores.mase_gluonts as mase
    from scores
    where scores.study = $study
),

measured as (
    select
        'measured' as whose,
        checkpoints.family,
        regexp_replace(narrow.model, '[-_]?[0-9.]*[-_][0-9]+$', '') as line, -- names end in size and seed
        narrow.model,
        coalesce(
            list_filter(
                json_keys(any_value(checkpoints.heads)::json), lambda key: key not in ('factors', 'attention')
            )[1],
            'dense'
        ) as schedule,
        any_value(narrow.size_parameter) as size,
        count(*) as n_cells,
        exp(avg(ln(nullif(narrow.wql, 0) / nullif(dense.wql, 0)))) as WQL,
        exp(avg(ln(nullif(narrow.mase, 0) / nullif(dense.mase, 0)))) as MASE
    from study_scores as narrow
    inner join study_scores as dense
        on dense.model = narrow.base_model
        and dense.dataset = narrow.dataset
        and dense.condition = narrow.condition
    inner join checkpoints
        on checkpoints.model = narrow.model
    group by
        checkpoints.family,
        narrow.model
),

measured_values as (
    unpivot measured
    on WQL, MASE
    into
        name quantity
        value value
),

study_figures as (
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
from measured_values
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
where figure in (select figure from study_figures)
    and first < 64
    and size is not null
order by quantity desc, family, whose, line, size, model
