-- Do heads align with the leading directions of their input more than chance?
-- Values per block, over heads, data sets and conditions: the mean overlap, the mean of
-- z = (overlap - chance) / chance_sd, and the share of overlaps with z above 2. chance and chance_sd
-- are the mean and the standard deviation of the overlap of a random space.
-- A head has the same W_Q and W_K on every data set, so several data sets are not independent
-- evidence.
with measured as (
    select
        *,
        (query - chance) / nullif(chance_sd, 0) as query_z,
        (key - chance) / nullif(chance_sd, 0) as key_z
    from alignment
),

final as (
    select
        model,
        any_value(base_model) as base_model,
        any_value(size_parameter) as size_parameter,
        any_value(size_rule) as size_rule,
        stack,
        layer,
        any_value(heads) as heads,
        count(distinct (dataset, condition)) as n_dumps,
        count(*) as n,
        count(*) - count(query) as n_null,
        avg(m) as m,
        avg(chance) as chance,
        avg(chance_sd) as chance_sd,
        avg(query) as query,
        avg(key) as key,
        avg(query_z) as query_z,
        avg(key_z) as key_z,
        avg((query_z > 2)::integer) as query_share_above,
        avg((key_z > 2)::integer) as key_share_above,
        avg(inverse_cosine) as inverse_cosine,
        avg(query_uncentred) as query_uncentred,
        avg(key_uncentred) as key_uncentred,
        min(reason) as reason
    from measured
    group by all
    order by model, stack, layer
)

select * from final
