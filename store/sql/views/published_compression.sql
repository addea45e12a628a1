-- What does the rank paper print of models whose attention was cut, relative to the original (Table 2)?
-- ratio: mean rank over width. T5 has no benchmark. The overlap of Chronos is the same in both of
-- its rows.
with table_2 (ratio, in_wql, in_mase, zero_wql, zero_mase, chronos_overlap, t5_lppl, t5_overlap) as (
    values
        (0.073, 4.409, 4.095, 3.562, 3.435, 0.308, 3.313, 0.227),
        (0.151, 1.991, 2.412, 1.566, 1.576, 0.717, 2.530, 0.301),
        (0.237, 1.053, 1.005, 1.030, 1.011, 0.883, 1.652, 0.345),
        (0.393, 1.009, 1.024, 0.990, 0.994, 0.979, 1.544, 0.568),
        (0.569, 1.003, 0.952, 0.945, 0.995, 0.997, 1.290, 0.730),
        (0.755, 1.007, 1.021, 1.027, 1.000, 0.999, 1.085, 0.871),
        (0.889, 1.000, 0.960, 1.016, 1.001, 0.999, 1.028, 0.954),
        (1.000, 1.000, 1.000, 1.000, 1.000, 1.000, 1.000, 1.000)
),

rows as (
    select
        'chronos-t5' as family,
        'in-domain' as benchmark,
        ratio,
        in_wql as wql_ratio,
        in_mase as mase_ratio,
        chronos_overlap as overlap,
        null as lppl
    from table_2
    union all by name
    select
        'chronos-t5' as family,
        'zero-shot' as benchmark,
        ratio,
        zero_wql as wql_ratio,
        zero_mase as mase_ratio,
        chronos_overlap as overlap,
        null as lppl
    from table_2
    union all by name
    select
        't5-text' as family,
        null as benchmark,
        ratio,
        null as wql_ratio,
        null as mase_ratio,
        t5_overlap as overlap,
        t5_lppl as lppl
    from table_2
),

final as (
    select
        'ranks Table 2' as figure,
        family,
        benchmark,
        ratio::double as ratio,
        wql_ratio::double as wql_ratio,
        mase_ratio::double as mase_ratio,
        overlap::double as overlap,
        lppl::double as lppl
    from rows
)

select * from final
