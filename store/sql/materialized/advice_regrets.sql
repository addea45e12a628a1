-- On each data set, how much worse than the best candidate are the most isotropic candidate and other choices [nats]?
-- A context that no series fills is not a candidate. Each value is a mean over the choices of a data
-- set. Among tied candidates, the choice is random, so their errors are averaged. A rule's value is
-- null if the rule is undefined for one of the choices.
with candidates as (
    select
        unnest(['model_and_context', 'model', 'context']) as "grouping",
        unnest(['', condition, model]) as choice,
        *
    from advice_candidates
    where is_filled
),

marked as (
    select
        *,
        min(log_nmse) over one_choice as least,
        max(isotropy) over one_choice as most_isotropic,
        min(log_nmse_earlier) over one_choice as least_earlier,
        max(context) over one_choice as longest,
        min(context) over one_choice as shortest
    from candidates
    window
        one_choice as (
            partition by study, measure, "grouping", dataset, choice
        )
),

choices as (
    select
        study,
        measure,
        "grouping",
        dataset,
        choice,
        count(*) as n,
        count(distinct model) > 1 and count(distinct context) > 1 as is_of_both,
        any_value(least) as least,
        avg(log_nmse) filter (where isotropy = most_isotropic) as advised,
        case when count(log_nmse_earlier) = count(*) then avg(log_nmse) filter (where log_nmse_earlier = least_earlier) end
            as validation,
        case when any_value(longest) > any_value(shortest) then avg(log_nmse) filter (where context = longest) end
            as largest_context,
        avg(log_nmse) as chance
    from marked
    group by
        study,
        measure,
        "grouping",
        dataset,
        choice
    having count(*) >= 2
),

groups as (
    select
        study,
        measure,
        "grouping"
    from choices
    group by
        study,
        measure,
        "grouping"
    having "grouping" != 'model_and_context'
        or bool_or(is_of_both)
),

final as (
    select
        choices.study,
        choices.measure,
        choices."grouping",
        choices.dataset,
        count(*) as n_choices,
        sum(choices.n)::bigint as n_candidates,
        avg(greatest(choices.advised - choices.least, 0)) as advised,
        case when count(choices.validation) = count(*) then avg(greatest(choices.validation - choices.least, 0)) end
            as validation,
        case when count(choices.largest_context) = count(*) then avg(greatest(choices.largest_context - choices.least, 0)) end
            as largest_context,
        avg(greatest(choices.chance - choices.least, 0)) as chance
    from choices
    semi join groups
        on groups.study = choices.study
        and groups.measure = choices.measure
        and groups."grouping" = choices."grouping"
    group by
        choices.study,
        choices.measure,
        choices."grouping",
        choices.dataset
)

select * from final
