-- With a noisier context, are states more isotropic, is the error larger, and do the two go against each other?
-- Shares of (model, data set) in which it is so; p: all 2^C flips of whole data sets.
-- changes_spearman: rho of the two changes over data sets, mean over models; p: data sets change places in all models.
-- Where the noise moves isotropy and error on most data sets, agreement follows from the two and is no third finding.
with final as (
    select * exclude (kind)
    from pair_tests
    where kind = 'noise'
    order by
        study,
        measure,
        pair,
        statistic
)

select * from final
