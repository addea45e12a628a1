-- For each model, does isotropy predict its forecasting error over data sets and conditions?
-- p permutes data sets together with their conditions. critical and detectable are values of |rho|
-- for as many independent data sets.
-- Data sets differ in difficulty. A difference that changes both isotropy and error causes a
-- correlation by itself.
with final as (
    select
        * exclude ("grouping", n_models)
            rename (block as model)
    from block_tests
    where "grouping" = 'per_model'
    order by study, measure, model
)

select * from final
