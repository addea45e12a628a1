-- Of two data sets of one domain, does the one with the more isotropic states have the lower NMSE?
-- p: all 2^C flips of whole pairs, which all models share; p_unclustered takes models as independent: no evidence.
-- Data sets of a domain differ in difficulty: one that moves isotropy and error alike makes agreement of its own.
with final as (
    select
        * exclude (kind, statistic, mean_change)
            rename (estimate as share)
    from pair_tests
    where kind = 'dataset'
    order by
        study,
        measure,
        pair
)

select * from final
