-- At equal size, do models pretrained with widening heads forecast better than models with heads of one width?
-- ratio: score of the first model divided by that of the second model with the same seed, as a
-- geometric mean over data sets and then seeds; below 1 the first is better.
-- The interval and p are Student's paired t over seeds, of the logarithms.
with final as (
    select
        study,
        "grouping" as family,
        block as pair,
        replace(measure, 'log ', '') as measure,
        n as n_seeds,
        exp(estimate) as ratio,
        exp(low) as low,
        exp(high) as high,
        p,
        p_bh,
        p_by,
        n_tests,
        method,
        reason
    from inference
    where answer = 'flow_against_flat'
)

select * from final
