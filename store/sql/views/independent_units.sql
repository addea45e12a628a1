-- Which models are independent of each other, and what are their isotropy and error in each cell that tests may score?
-- A model with a base model is a copy of it. A snapshot is an earlier state of the model at the end of its training.
with final as (
    select measured.*
    from nmse_against_isotropy as measured
    anti join snapshot_models
        on snapshot_models.model = measured.model
    anti join confirming_datasets
        using (study, dataset)
    where measured.base_model is null
)

select * from final
