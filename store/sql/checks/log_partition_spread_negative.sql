-- No spread of log Z is negative.
with final as (
    select
        model,
        dataset,
        condition,
        log_z_sd,
        log_z_range
    from partition
    where log_z_sd < 0
        or log_z_range < 0
)

select * from final
