-- Which measurement matches each printed number, how do they differ, and what is missing if there is none?
-- A printed number is matched with every study of its figure, and with every model of its family in
-- that study. A number without a study has one row of its own. A compressed model is matched with
-- the closest printed size, which must lie within a factor of 1.1 of its mean rank over width. A
-- line of pretrained models is matched by the growth of its schedule, or by its nominal size if the
-- schedule is flat. remedy: what to run to get a comparable number.
with printed as (
    select
        row_number() over () as number,
        studies.study,
        published_values.*,
        studies.study is null as is_absent
    from published_values
    left join studies
        on studies.figure = published_values.figure
),

models as (
    select distinct study, family, model, depth
    from measured_numbers
),

states as (
    select
        printed.* replace (coalesce(measured.dataset, printed.dataset) as dataset),
        models.model,
        measured.condition,
        measured.measured,
        measured.low,
        measured.high,
        measured.n,
        measured.no_interval,
        null as told,
        concat_ws(
            '; ',
            case when checkpoints.source in ('committed', 'trained') then 'a small checkpoint of ours' end,
            case when checkpoints.source = 'compressed' then 'a compressed model' end,
            case
                when checkpoints.source in ('hub', 'folder') and models.depth != printed.depth
                    then 'another size: ' || models.depth || ' layers, the paper''s has ' || printed.depth
            end,
            case when measured.stands_in_for is not null then 'a stand-in for the data: ' || measured.stands_in_for end
        ) as unlike,
        case
            when is_absent then 'no study of this run is of this figure'
            when models.model is null then 'no model of this family in the study'
            when printed.layer > models.depth then 'the model has ' || models.depth || ' layers'
            when measured.quantity is null then 'no such data set or condition in the study'
            when measured.measured is null then coalesce('null: ' || measured.no_interval, 'no value')
        end as lacks,
        case
            when printed.family = 'patchtst' then 'no run can: no weights of the paper''s are public'
            when contains(measured.stands_in_for, 'no public source') then 'no run can: the paper''s data has no public source'
            when measured.stands_in_for is not null
                then 'make profile NAME=paper; make repro, with the paper''s own data'
            else 'make profile NAME=paper; make repro'
        end as remedy
    from printed
    left join models
        using (study, family)
    left join measured_numbers as measured
        on measured.study = printed.study
        and measured.model = models.model
        and measured.paper = printed.dataset
        and measured.quantity = printed.quantity
        and measured.noise = printed.noise
        and measured.context = coalesce(printed.context, measured.context)
        and measured.layer is not distinct from printed.layer
    left join checkpoints
        on checkpoints.model = models.model
    where printed.dataset is not null
),

matches as (
    select
        printed.number,
        measured.*
    from printed
    inner join measured_losses as measured
        on measured.study = printed.study
        and measured.family = printed.family
        and case
            when measured.schedule = 'svd' then printed.figure = 'ranks Table 2' and abs(ln(measured.size / printed.size)) <= ln(1.1)
            when measured.schedule = 'flow' then printed.growth = measured.growth
            when measured.schedule = 'flat' then printed.growth = 0 and printed.size = measured.size
        end
        and (printed.line is null or (printed.line = 'reused embedding') = coalesce(measured.is_reused, false))
    qualify dense_rank() over (partition by printed.number, measured.quantity order by abs(ln(measured.size / printed.size))) = 1
),

either_score as (
    -- Both scores as text, for printed columns whose heads do not name the score.
    select
        number,
        any_value(source) as source,
        any_value(model) as model,
        string_agg(
            quantity || ' ' || format('{:.3g}', measured)
            || coalesce(' (' || format('{:.3g}', low) || ' to ' || format('{:.3g}', high) || ')', ''),
            ', ' order by quantity desc
        ) as told
    from matches
    where quantity in ('WQL', 'MASE')
    group by all
),

losses as (
    select
        printed.*,
        coalesce(matches.model, either_score.model) as model,
        matches.measured,
        matches.low,
        matches.high,
        matches.n,
        matches.no_interval,
        either_score.told,
        concat_ws(
            '; ',
            case
                when coalesce(matches.source, either_score.source) in ('committed', 'trained')
                    then 'a small checkpoint of ours'
            end,
            case when matches.quantity = 'time' then 'other hardware' end,
            case
                when matches.quantity in ('overlap', 'LPPL') then 'data that the paper does not name'
                when matches.quantity in ('WQL', 'MASE') or either_score.told is not null
                    then 'other data than the paper''s benchmark'
            end,
            case when either_score.told is not null then 'the column''s head does not say which score it holds' end
        ) as unlike,
        case
            when is_absent then 'no study of this run is of this figure'
            when coalesce(matches.model, either_score.model) is not null then null
            when printed.quantity = 'space' then 'no job measures memory: bench/compression.py does'
            when printed.figure = 'ranks Table 2' then 'no model is cut by svd to about this size'
            else 'no model of this schedule has scores in the study'
        end as lacks,
        case
            when printed.profile = 'paper' then 'make profile NAME=paper; make repro, on the paper''s benchmark'
            when printed.quantity = 'space' then 'python -m bench.compression'
            when is_absent then 'make profile NAME=compression; make repro, at toy size'
            else 'the recipes of params/compression.yaml at the paper''s size, on its benchmark'
        end as remedy
    from printed
    left join matches
        using (number, quantity)
    left join either_score
        on either_score.number = printed.number
        and starts_with(printed.quantity, 'score ')
    where printed.dataset is null
),

final as (
    select * from states
    union all by name
    select * from losses
)

select * exclude (number, is_absent) from final
