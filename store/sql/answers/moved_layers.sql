-- How far did compression, other options or training move each layer away from the original's, as 1 - CKA?
-- Means over data sets; the ends of the intervals are the least and the largest of all data sets.
with changed as (
    select
        similarity.*,
        coalesce(similarity.base_model, population.run) as original
    from similarity
    left join population
        on population.model = similarity.model
),

final as (
    select
        study, model, other, condition, stack, layer, normed,
        avg(1 - cka) as moved,
        min(1 - cka_high) as low,
        max(1 - cka_low) as high,
        avg(procrustes) as procrustes,
        count(*) as n_datasets
    from changed
    where other = original
        and (stack, layer, normed) = (other_stack, other_layer, other_normed)
        and cka is not null
    group by all
)

select * from final
order by study, model, condition, stack, layer, normed
