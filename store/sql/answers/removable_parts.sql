-- Which parts can go, each alone, within the limits of the certificate, and what do they cost?
with final as (
    select
        study, model, condition, stack, layer, kind, part, way, ratio, low, high, upper, units, bytes_share, products_share
    from ablation
    where can_go and kind <> 'exit'
)

select * from final
order by study, model, condition, ratio
