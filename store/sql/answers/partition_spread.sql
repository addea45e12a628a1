-- Is the partition function of the softmax head stable if states are isotropic, and is the error then smaller?
-- log Z is that of the logits as the model emits them, over teacher-forced forecast positions.
-- Isotropy is that of the last layer (view last_layer).
with cells as (
    select study, model, dataset, condition
    from last_layer
    union
    select study, model, dataset, condition
    from scores
),

final as (
    select
        cells.study,
        partition.model,
        partition.base_model,
        partition.size_parameter,
        partition.size_rule,
        partition.dataset,
        partition.condition,
        partition.context,
        partition.noise,
        partition.n_positions,
        partition.n_ids,
        partition.log_z_mean,
        partition.log_z_sd,
        partition.log_z_range,
        partition.reason,
        last_layer.zeta_adjusted,
        last_layer.zeta_adjusted_corrected,
        last_layer.log_isotropy,
        last_layer.log_isotropy_scaled,
        scores.nmse,
        scores.log_nmse
    from partition
    left join cells
        using (model, dataset, condition)
    left join last_layer
        on last_layer.study = cells.study
        and last_layer.model = partition.model
        and last_layer.dataset = partition.dataset
        and last_layer.condition = partition.condition
    left join scores
        on scores.study = cells.study
        and scores.model = partition.model
        and scores.dataset = partition.dataset
        and scores.condition = partition.condition
    order by cells.study, partition.model, partition.dataset, partition.condition
)

select * from final
