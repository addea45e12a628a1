-- Which models count in the correlation of isotropy with error?
-- Only models without a base model, because a compressed copy is not an independent model.
with final as (
    select *
    from nmse_against_isotropy
    where base_model is null
        and isotropy is not null
        and log_nmse is not null
)

select * from final
