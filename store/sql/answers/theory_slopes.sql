-- Do the errors and ranks of Appendix J grow at the rates that the paper states?
-- There is one slope per seed. The 95 % t interval of their mean uses the quantile by Cornish and
-- Fisher's expansion, which a test verifies to 2e-4 for 9 seeds or more. With fewer than six seeds
-- there is no interval.
-- claimed: slope that the paper states or implies; for a decay (Corollary 2) the slowest that it
-- allows; null if the paper only states that something grows.
-- verdict: agrees or differs, according to the interval; undecided if there is none.
with spread as (
    select
        experiment,
        any_value(claimed) as claimed,
        count(*) as n_seeds,
        avg(n_points) as points_a_seed,
        avg(slope) as slope,
        min(slope) as least,
        max(slope) as largest,
        stddev_samp(slope) / sqrt(count(*)) as standard_error
    from theory_seed_slopes
    group by all
),

quantiles as (
    select
        *,
        1.959963984540054::double as z,
        (n_seeds - 1)::double as v
    from spread
),

halves as (
    select
        * exclude (z, v),
        case
            when n_seeds >= 6 then standard_error * (
                z
                + (z ** 3 + z) / (4 * v)
                + (5 * z ** 5 + 16 * z ** 3 + 3 * z) / (96 * v ** 2)
                + (3 * z ** 7 + 19 * z ** 5 + 17 * z ** 3 - 15 * z) / (384 * v ** 3)
                + (79 * z ** 9 + 776 * z ** 7 + 1482 * z ** 5 - 1920 * z ** 3 - 945 * z) / (92160 * v ** 4)
            )
        end as half
    from quantiles
),

final as (
    select
        experiment,
        n_seeds,
        points_a_seed,
        slope,
        slope - half as low,
        slope + half as high,
        least,
        largest,
        claimed,
        case
            when half is null then 'undecided'
            when claimed is null then case when slope - half > 0 then 'agrees' else 'differs' end
            when experiment like 'Corollary 2%' then case when slope + half <= claimed then 'agrees' else 'differs' end
            when claimed between slope - half and slope + half then 'agrees'
            else 'differs'
        end as verdict
    from halves
    order by experiment
)

select * from final
