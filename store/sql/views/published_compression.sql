-- Which numbers do Yu et al. 2026 print for models with truncated attention, relative to the original (Table 2)?
-- ratio: mean rank over width. T5 has no benchmark. The overlap of Chronos is the same in both of
-- its rows.
with printed as (
    select
        *,
        published_text::double as published
    from printed_ranks
    where figure = 'ranks Table 2'
),

cells as (
    select distinct
        figure,
        family,
        line as benchmark,
        size as ratio
    from printed
    where line is not null
        or family = 't5-text'
),

final as (
    select
        cells.*,
        max(printed.published) filter (where printed.quantity = 'WQL') as wql_ratio,
        max(printed.published) filter (where printed.quantity = 'MASE') as mase_ratio,
        max(printed.published) filter (where printed.quantity = 'overlap') as overlap,
        max(printed.published) filter (where printed.quantity = 'LPPL') as lppl
    from cells
    inner join printed
        on printed.family = cells.family
        and printed.size = cells.ratio
        and coalesce(printed.line = cells.benchmark, true)
    group by all
)

select * from final
