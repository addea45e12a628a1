-- Which hypotheses about the population hold on the data sets that were kept for confirming them?
-- A hypothesis holds, or is reversed, if p_by is at most alpha; the sign of the estimate decides. If no effect was
-- found, one as large as `detectable` would have been found with a probability of 80 %.
with final as (
    select
        hypotheses.name,
        hypotheses.claim,
        hypotheses.study,
        hypotheses.measure,
        hypotheses."grouping",
        hypotheses.error,
        hypotheses.direction,
        explored.estimate as explored_estimate,
        explored.p as explored_p,
        confirmed.estimate,
        confirmed.low,
        confirmed.high,
        confirmed.p,
        confirmed.p_by,
        confirmed.detectable,
        confirmed.n,
        confirmed.n_clusters,
        case
            when confirmed.p_by is null then 'not tested'
            when confirmed.p_by > confirmed.alpha then 'no effect found'
            when (confirmed.estimate < 0) = (hypotheses.direction = 'negative') then 'holds'
            else 'reversed'
        end as verdict,
        confirmed.method,
        confirmed.reason,
        hypotheses.commit
    from hypotheses
    left join inference as confirmed
        on confirmed.answer = 'hypothesis_tests'
        and confirmed.study = hypotheses.study
        and confirmed.measure = hypotheses.measure
        and confirmed."grouping" = hypotheses."grouping"
        and confirmed.statistic = hypotheses.statistic
    left join inference as explored
        on explored.answer = 'population_correlation'
        and explored.study = hypotheses.study
        and explored.measure = hypotheses.measure
        and explored."grouping" = hypotheses."grouping"
        and explored.statistic = hypotheses.statistic
)

select * from final
