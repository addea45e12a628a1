-- Which models count where isotropy is held against error?
-- Only models without a base model, because a compressed copy is not an independent model.
with final as (
    select *
    from nmse_against_isotropy
    where base_model is null
        and isotropy is not null
        and log_nmse is not null
)

select * from final
