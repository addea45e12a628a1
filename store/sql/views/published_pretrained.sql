-- What does the rank paper print of models pretrained with narrow heads, relative to the dense one (Fig. 7, Tables 3, 4)?
-- size: nominal size ratio in the paper; Table 4 prints none. The heads of the four score columns of
-- Fig. 7 do not say which is WQL and which is MASE, so they are called score a and score b, in their
-- order.
with fig_7 (first, growth, size, time_ratio, space_ratio, scratch_a, scratch_b, reuse_a, reuse_b) as (
    values
        (3, 0.27, 0.075, 0.346, 0.186, 1.034, 0.988, 0.966, 0.982),
        (5, 0.35, 0.150, 0.398, 0.312, 1.048, 0.982, 1.080, 1.055),
        (7, 0.40, 0.250, 0.494, 0.440, 1.021, 0.949, 0.996, 1.019),
        (64, 0.00, 1.000, 1.000, 1.000, 1.000, 1.000, 1.000, 1.000)
),

table_3 (size, flow_first, flow_growth, flow_wql, flow_mase, flat_first, flat_wql, flat_mase) as (
    values
        (0.250, 8, 0.34, 1.001, 1.014, 16, 1.069, 1.050),
        (0.500, 10, 0.58, 0.996, 1.007, 32, 1.038, 1.036),
        (1.000, null, null, null, null, 64, 1.000, 1.000)
),

table_4 (first, growth, time_ratio, space_ratio, in_wql, in_mase, zero_wql, zero_mase) as (
    values
        (2, 0.25, 0.517, 0.802, 1.005, 1.004, 1.013, 0.999),
        (3, 0.50, 0.601, 0.821, 1.005, 0.996, 1.009, 1.001),
        (5, 0.70, 0.740, 0.840, 0.980, 1.003, 0.991, 1.010),
        (64, 0.00, 1.000, 1.000, 1.000, 1.000, 1.000, 1.000)
),

rows as (
    select
        'ranks Fig. 7' as figure,
        'chronos-t5' as family,
        score.line,
        score.quantity,
        first,
        growth,
        size,
        time_ratio,
        space_ratio,
        score.value
    from fig_7,
        lateral (
            values
                ('from scratch', 'score a', scratch_a),
                ('from scratch', 'score b', scratch_b),
                ('reused embedding', 'score a', reuse_a),
                ('reused embedding', 'score b', reuse_b)
        ) as score (line, quantity, value)
    union all by name
    select
        'ranks Table 3' as figure,
        'moirai' as family,
        score.line,
        score.quantity,
        score.first,
        score.growth,
        size,
        null as time_ratio,
        null as space_ratio,
        score.value
    from table_3,
        lateral (
            values
                ('flow', 'WQL', flow_first, flow_growth, flow_wql),
                ('flow', 'MASE', flow_first, flow_growth, flow_mase),
                ('flat', 'WQL', flat_first, 0.0, flat_wql),
                ('flat', 'MASE', flat_first, 0.0, flat_mase)
        ) as score (line, quantity, first, growth, value)
    where score.value is not null
    union all by name
    select
        'ranks Table 4' as figure,
        'chronos-bolt' as family,
        score.line,
        score.quantity,
        first,
        growth,
        null as size,
        time_ratio,
        space_ratio,
        score.value
    from table_4,
        lateral (
            values
                ('in-domain', 'WQL', in_wql),
                ('in-domain', 'MASE', in_mase),
                ('zero-shot', 'WQL', zero_wql),
                ('zero-shot', 'MASE', zero_mase)
        ) as score (line, quantity, value)
),

final as (
    select
        figure,
        family,
        line,
        quantity,
        first::double as first,
        growth::double as growth,
        size::double as size,
        time_ratio::double as time_ratio,
        space_ratio::double as space_ratio,
        value::double as value
    from rows
)

select * from final
