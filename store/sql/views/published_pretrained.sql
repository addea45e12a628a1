-- Which numbers do Yu et al. 2026 print for models with narrow heads, relative to the dense one (Fig. 7, Tables 3, 4)?
-- size: nominal size ratio in the paper; Table 4 prints none. The heads of the four score columns of
-- Fig. 7 do not say which is WQL and which is MASE, so they are called score a and score b, in their
-- order.
with printed as (
    select
        * exclude (published_text),
        published_text::double as value
    from printed_ranks
    where figure != 'ranks Table 2'
),

costs as (
    select
        figure,
        first,
        max(value) filter (where quantity = 'time') as time_ratio,
        max(value) filter (where quantity = 'space') as space_ratio
    from printed
    where quantity in ('time', 'space')
    group by all
),

final as (
    select
        printed.figure,
        printed.family,
        printed.line,
        printed.quantity,
        printed.first,
        printed.growth,
        printed.size,
        costs.time_ratio,
        costs.space_ratio,
        printed.value
    from printed
    left join costs
        using (figure, first)
    where printed.quantity not in ('time', 'space')
)

select * from final
