-- Correlation of isotropy with error in each data set
with cells as (
    select distinct dataset, condition
    from nmse_against_isotropy
    where study = $study
),

final as (
    select
        cells.dataset,
        cells.condition,
        blocks.n_models,
        blocks.spearman, -- of isotropy and log NMSE over models; negative: more isotropic, less error
        whole.low,
        whole.high
    from cells
    inner join correlation_blocks as blocks
        on blocks.study = $study
        and blocks.measure = 'zeta_adjusted_corrected'
        and blocks."grouping" = 'per_dataset'
        and blocks.block = cells.dataset || ' / ' || cells.condition
    left join correlation_by_dataset as whole -- of all conditions: only where there is one
        on whole.study = blocks.study
        and whole.measure = blocks.measure
        and whole.dataset = cells.dataset
        and whole.n = blocks.n
    order by cells.dataset, cells.condition
)

select * from final
