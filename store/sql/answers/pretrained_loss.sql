-- How much accuracy does pretraining with narrow heads cost, as a ratio to the dense model of the same seed?
-- ratio: geometric mean over data sets and conditions, and then over seeds.
-- The interval and p are Student's t of the logarithms over the n seeds, or over data sets and
-- conditions if a line has one seed. p tests the hypothesis that the ratio is 1.
with final as (
    select
        study,
        "grouping" as family,
        block as line,
        replace(measure, 'log ', '') as measure,
        n,
        exp(estimate) as ratio,
        exp(low) as low,
        exp(high) as high,
        p,
        p_bh,
        p_by,
        n_tests,
        reason
    from inference
    where answer = 'pretrained_loss'
)

select * from final
order by study, family, line, measure
