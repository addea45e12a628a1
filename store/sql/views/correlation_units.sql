-- Which models count where isotropy is held against error?
-- Those made from no other: a compressed copy is no second model.
with final as (
    select *
    from nmse_against_isotropy
    where base_model is null
        and isotropy is not null
        and log_nmse is not null
)

select * from final
