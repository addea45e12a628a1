-- Which models of each study were pretrained with narrow heads, by which schedule, and which are seeds of one line?
-- Only the model's name ("reuse") shows whether its embedding was reused. Models with factors that
-- heads share are a line of their own. So are models whose heads are narrow in some kinds of
-- attention only: kinds lists these, and is null if the heads are narrow in all kinds.
with narrow as (
    select
        model,
        family,
        source,
        heads::json as heads
    from checkpoints
    where heads is not null
),

final as (
    select distinct
        forecasts.study,
        forecasts.model,
        forecasts.base_model,
        forecasts.size_parameter as size,
        narrow.family,
        narrow.source,
        list_filter(json_keys(narrow.heads), lambda key: key not in ('factors', 'attention'))[1] as schedule,
        (narrow.heads ->> '$.flow.growth')::double as growth,
        coalesce(narrow.heads ->> '$.factors' = 'shared', false) as is_shared,
        array_to_string((narrow.heads -> '$.attention')::varchar[], ', ') as kinds,
        contains(narrow.model, 'reuse') as is_reused,
        concat_ws(
            ', ',
            schedule,
            format('{:g}', growth),
            case when is_reused then 'reused embedding' end,
            case when is_shared then 'shared factors' end,
            kinds || '-attention alone'
        ) || ' at ' || format('{:g}', forecasts.size_parameter) as line
    from forecasts
    inner join narrow
        on narrow.model = forecasts.model
    where forecasts.base_model is not null
)

select * from final
