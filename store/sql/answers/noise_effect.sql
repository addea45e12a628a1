-- With a noisier context, are states more isotropic, is the error larger, and are the two changes opposite?
-- Shares of units (model, data set) for which the statement holds; p counts all 2^C flips of the
-- signs of whole data sets.
-- changes_spearman: correlation of the two changes over data sets, as a mean over models; p
-- permutes data sets, in the same way in all models.
-- If the noise changes isotropy and error on most data sets, the agreement of their signs follows
-- and is not a separate finding.
with final as (
    select * exclude (kind)
    from pair_tests
    where kind = 'noise'
    order by study, measure, pair, statistic
)

select * from final
