-- Which numbers do the two papers print, one per row, and which profile measures them at the size of the paper?
-- size: mean rank over width (Table 2), or the nominal size ratio. published_text: as printed. Rows
-- of the uncompressed model, which are 1 by definition, are only in the views published_compression
-- and published_pretrained.
with quoted as (
    select
        figure,
        source,
        family,
        dataset,
        context,
        noise,
        layer,
        depth,
        quantity,
        concat_ws(
            ' ',
            quantity,
            'of',
            family,
            'on',
            dataset || case when layer is not null then ', layer ' || layer else '' end
            || case when context is not null then ', context ' || context else '' end
            || case when noise > 0 then ', noise ' || format('{:g}', noise) else '' end
        ) as claim,
        published,
        published_text
    from published_numbers
),

cut as (
    select
        printed.figure,
        'Table 2' as source,
        printed.family,
        case when score.quantity in ('WQL', 'MASE') then printed.benchmark end as line,
        printed.ratio as size,
        score.quantity,
        concat_ws(
            ', ',
            score.quantity || ' of ' || printed.family || ' cut to ' || format('{:g}', printed.ratio),
            case when score.quantity in ('WQL', 'MASE') then printed.benchmark end
        ) as claim,
        score.published
    from published_compression as printed,
        lateral (
            values
                ('WQL', printed.wql_ratio),
                ('MASE', printed.mase_ratio),
                ('overlap', case when printed.benchmark is distinct from 'zero-shot' then printed.overlap end),
                ('LPPL', printed.lppl)
        ) as score (quantity, published)
    where printed.ratio < 1
        and score.published is not null
),

schedules as (
    select
        *,
        concat_ws(
            ' ',
            case when line = 'flat' then 'flat' else 'flow from' end,
            format('{:g}', first),
            case when growth > 0 then 'by ' || format('{:g}', growth) end
        ) as schedule
    from published_pretrained
    where first < 64
),

scored as (
    select
        figure,
        family,
        line,
        size,
        growth,
        quantity,
        concat_ws(', ', quantity || ' of ' || family, schedule, nullif(nullif(line, 'flow'), 'flat')) as claim,
        value as published
    from schedules
),

spent as (
    select distinct
        schedules.figure,
        schedules.family,
        schedules.size,
        schedules.growth,
        cost.quantity,
        cost.quantity || ' of ' || schedules.family || ', ' || schedules.schedule as claim,
        cost.published
    from schedules,
        lateral (
            values ('time', schedules.time_ratio), ('space', schedules.space_ratio)
        ) as cost (quantity, published)
    where cost.published is not null
),

pretrained as (
    select * from scored
    union all by name
    select * from spent
),

ratios as (
    select * from cut
    union all by name
    select
        *,
        split_part(figure, ' ', 2) || ' ' || split_part(figure, ' ', 3) as source
    from pretrained
),

all_values as (
    select
        *,
        'paper' as profile
    from quoted
    union all by name
    select
        *,
        format('{:.3f}', published) as published_text,
        case when figure = 'ranks Table 2' then 'paper' else 'compression' end as profile
    from ratios
),

final as (
    select
        figure,
        source,
        claim,
        family,
        dataset,
        context,
        noise,
        layer,
        depth,
        line,
        size,
        growth,
        quantity,
        published,
        published_text,
        profile
    from all_values
)

select * from final
