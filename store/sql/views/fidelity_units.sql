-- Which numbers do tests on fidelity compare: per data set, the overlap minus 1, and the log of LPPL?
with final as (
    select
        fidelity.study,
        'compression_fidelity' as answer,
        score.measure,
        compression.method as "grouping",
        fidelity.model as block,
        'mean' as statistic,
        null::varchar as sample,
        concat_ws(' ', fidelity.dataset, fidelity.condition) as unit,
        null::double as x,
        score.value
    from fidelity
    inner join compression
        on compression.model = fidelity.model,
        lateral (
            values ('overlap less 1', fidelity.overlap - 1), ('log LPPL', ln(nullif(fidelity.lppl, 0)))
        ) as score (measure, value)
    where score.value is not null
)

select * from final
