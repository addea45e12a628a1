-- What is each isotropy measure of the last layer, and as a number that is larger where states are more isotropic?
-- The catalogue fills in its two parameters: the columns of `geometry` that declare more_isotropic, and those of
-- them of which a larger value is more isotropic.
with layers as (
    select
        study,
        family,
        model,
        base_model,
        size_parameter,
        size_rule,
        dataset,
        condition,
        context,
        noise,
        $measures
    from last_layer
),

measures as (
    select *
    from layers unpivot include nulls (value for measure in ($measures))
),

final as (
    select
        * replace (case when isfinite(value) then value end as value),
        case
            when not isfinite(value) then null
            when measure in ($larger_is_isotropic) then value
            else -abs(value)
        end as isotropy
    from measures
)

select * from final
