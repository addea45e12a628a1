-- Which hypotheses about the population hold on the data sets that were kept for confirming them?
-- A hypothesis holds, or is reversed, if p_holm is at most alpha (p_by where p_holm is not known); the side of the
-- estimate decides. Otherwise there is no effect if the interval, and what would have been found in 80 % of samples,
-- lie within the margin that was committed with the hypothesis, and the verdict is undecided if not.
-- committed: time of the commit of the hypotheses; forecast_from: when the first forecasts of the run began.
with final as (
    select
        hypotheses.name,
        hypotheses.claim,
        hypotheses.study,
        hypotheses.measure,
        hypotheses."grouping",
        hypotheses.error,
        hypotheses.direction,
        hypotheses.centre,
        hypotheses.margin,
        explored.estimate as explored_estimate,
        explored.p as explored_p,
        confirmed.estimate,
        confirmed.low,
        confirmed.high,
        confirmed.p,
        confirmed.p_by,
        hypotheses.p_holm,
        confirmed.detectable,
        confirmed.n,
        confirmed.n_clusters,
        case
            when coalesce(hypotheses.p_holm, confirmed.p_by) is null then 'not tested'
            when coalesce(hypotheses.p_holm, confirmed.p_by) <= confirmed.alpha
                then case
                    when (confirmed.estimate < coalesce(hypotheses.centre, 0)) = (hypotheses.direction = 'negative')
                        then 'holds'
                    else 'reversed'
                end
            when confirmed.low > hypotheses.centre - hypotheses.margin
                and confirmed.high < hypotheses.centre + hypotheses.margin
                and confirmed.detectable - hypotheses.centre <= hypotheses.margin
                then 'no effect'
            else 'undecided'
        end as verdict,
        confirmed.method,
        confirmed.reason,
        hypotheses.commit,
        hypotheses.committed,
        forecasts.started as forecast_from
    from hypotheses
    left join inference as confirmed
        on confirmed.answer = coalesce(hypotheses.answer, 'hypothesis_tests')
        and confirmed.study = hypotheses.study
        and confirmed.measure = hypotheses.measure
        and confirmed."grouping" = hypotheses."grouping"
        and confirmed.statistic = hypotheses.statistic
    cross join (
        select min(started) as started
        from runs
        where stage = 'forecasts'
    ) as forecasts
    left join inference as explored
        on explored.answer = 'population_correlation'
        and explored.study = hypotheses.study
        and explored.measure = hypotheses.measure
        and explored."grouping" = hypotheses."grouping"
        and explored.statistic = hypotheses.statistic
)

select * from final
