-- What angles do embedded tokens have with each other, and rows of W_Q within and between heads (Yu et al. 2026, Fig. 3)?
-- Angles are those of eq. 2, arccos |cos|, so they lie between 0 and 90 degrees. They are over all
-- pairs of one set; gaussian is a set of random vectors of the same dimension.
-- pairs: for rows of a weight, whether the two rows belong to one head or to two.
with listed as (
    select
        * exclude (angles),
        -- The list contains only the rows after this one.
        row + generate_subscripts(angles, 1) as to_row,
        unnest(angles) as angle
    from (
        select * replace (angles[row + 2:] as angles)
        from angles
    )
),

final as (
    select
        listed.study,
        listed.model,
        listed.dataset,
        listed.condition,
        listed.what,
        listed.matrix,
        listed.stack,
        listed.layer,
        listed.dimension,
        case
            when others.head is null then 'all'
            when others.head = listed.head then 'of one head'
            else 'of two heads'
        end as pairs,
        count(*) as n_pairs,
        degrees(avg(listed.angle)) as mean_angle,
        degrees(quantile_cont(listed.angle, 0.05)) as low_angle,
        degrees(quantile_cont(listed.angle, 0.95)) as high_angle
    from listed
    left join angles as others
        on others.study = listed.study
        and others.job_key = listed.job_key
        and others.what = listed.what
        and others.matrix is not distinct from listed.matrix
        and others.stack is not distinct from listed.stack
        and others.layer is not distinct from listed.layer
        and others.dimension = listed.dimension
        and others.row = listed.to_row
    group by all
    order by all
)

select * from final
