-- A row on a head that lacks its measure says why.
with measured as (
    select
        'alignment' as measured,
        model,
        dataset,
        condition,
        stack,
        layer,
        reason,
        query is null or query_uncentred is null or key is null or key_uncentred is null as lacks
    from alignment
    union all
    select
        'partition',
        model,
        dataset,
        condition,
        null,
        null,
        reason,
        log_z_sd is null
    from partition
    union all
    select
        'jacobian',
        model,
        dataset,
        condition,
        stack,
        layer,
        reason,
        norm is null or safe is null
    from jacobian
),

final as (
    select * exclude (lacks)
    from measured
    where lacks
        and reason is null
)

select * from final
