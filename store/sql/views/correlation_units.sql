-- Which models count in the correlation of isotropy with error?
-- Only independent models with both values, because a copy is not another model.
with final as (
    select *
    from independent_units
    where isotropy is not null
        and log_nmse is not null
)

select * from final
