-- Does the data set with the more isotropic states have the lower NMSE, of two of one domain?
-- p counts all 2^C flips of the signs of whole pairs, which all models share. p_unclustered treats
-- models as independent, so it is no evidence.
-- Data sets of a domain differ in difficulty. A difference that changes both isotropy and error
-- causes agreement by itself.
with final as (
    select
        * exclude (kind, statistic, mean_change)
            rename (estimate as share)
    from pair_tests
    where kind = 'dataset'
    order by study, measure, pair
)

select * from final
