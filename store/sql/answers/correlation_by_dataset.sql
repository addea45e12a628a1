-- For each data set, does isotropy predict the forecasting error over models and conditions?
-- p permutes models together with their conditions. critical and detectable are values of |rho| for
-- as many independent models.
with final as (
    select
        * exclude ("grouping", n_datasets)
            rename (block as dataset)
    from block_tests
    where "grouping" = 'within_dataset'
    order by study, measure, dataset
)

select * from final
