-- How much do next tokens and perplexity of a compressed model differ from the original, as a mean over data sets?
-- overlap: mean Jaccard overlap of the ten likeliest next tokens. LPPL: log perplexity divided by
-- the original's, as a geometric mean.
-- The interval and p are Student's t over data sets. p tests the hypothesis that the value is 1 (no
-- change).
with final as (
    select
        study,
        "grouping" as method,
        block as model,
        case when measure = 'log LPPL' then 'LPPL' else 'overlap' end as measure,
        n,
        case when measure = 'log LPPL' then exp(estimate) else 1 + estimate end as estimate,
        case when measure = 'log LPPL' then exp(low) else 1 + low end as low,
        case when measure = 'log LPPL' then exp(high) else 1 + high end as high,
        p,
        p_bh,
        p_by,
        n_tests,
        reason
    from inference
    where answer = 'compression_fidelity'
)

select * from final
order by study, method, model, measure
