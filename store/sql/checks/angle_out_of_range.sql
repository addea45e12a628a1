-- Angles between directions lie in [0, pi/2].
with measured as (
    select
        study,
        model,
        what,
        row,
        unnest(angles) as angle
    from angles
),

final as (
    select *
    from measured
    where angle < 0
        or angle > pi() / 2 + 1e-6
)

select * from final
