-- What do the papers print or claim, what did we measure, and do the two agree?
-- A number can be compared on a released checkpoint and the paper's own data, and agrees inside the interval. A claim
-- agrees (differs) where the interval and p <= alpha say so for its side (the other); else it is undecided.
with numbers as (
    select
        questions.study,
        printed.figure,
        printed.quantity || ' of ' || printed.family || ' on ' || printed.dataset as claim,
        printed.source,
        measured.model,
        measured.dataset,
        measured.condition,
        printed.quantity as measure,
        printed.quantity,
        printed.published,
        printed.published_text,
        measured.measured,
        measured.low,
        measured.high,
        null::bigint as n,
        null::double as p,
        concat_ws(
            '; ',
            case when checkpoints.source in ('committed', 'trained') then 'a small checkpoint of ours' end,
            case when checkpoints.source = 'compressed' then 'a compressed model' end,
            case when datasets.stands_in_for is not null then 'a stand-in for the data: ' || datasets.stands_in_for end
        ) as unlike,
        case
            when measured.measured is null then 'not measured'
            when measured.low is null then 'no interval'
        end as lacks,
        printed.published between measured.low and measured.high as agrees,
        true as differs
    from published_numbers as printed
    inner join questions
        on questions.figure = printed.figure
    inner join datasets
        on datasets.paper = printed.dataset
    inner join measured_numbers as measured
        on measured.study = questions.study
        and measured.family = printed.family
        and measured.dataset = datasets.dataset
        and measured.quantity = printed.quantity
        and measured.noise = printed.noise
        and measured.context = coalesce(printed.context, measured.context)
    inner join checkpoints
        on checkpoints.model = measured.model
),

claims as (
    select
        questions.study,
        claimed.figure,
        claimed.claim,
        claimed.source,
        case when inference."grouping" = 'model' then inference.block end as model,
        null::varchar as dataset,
        case
            when inference."grouping" in ('context', 'noise') then inference.block
            when claimed.answer in ('flow_against_flat', 'compression_loss') then inference.block
        end as condition,
        claimed.measure,
        case
            when claimed.answer in ('flow_against_flat', 'compression_loss')
                then concat_ws(' ', split_part(claimed.measure, '@', 1), claimed.statistic)
            else claimed.statistic
        end as quantity,
        null::double as published,
        case when claimed.side > 0 then '> ' else '< ' end || format('{:g}', claimed.centre) as published_text,
        inference.estimate as measured,
        inference.low,
        inference.high,
        inference.n,
        inference.p,
        '' as unlike,
        case
            when inference.estimate is null then coalesce(inference.reason, 'not measured')
            when inference.p is null or inference.low is null then coalesce(inference.reason, 'no test')
            when inference.p_smallest > inference.alpha
                then 'the smallest p that the test can give is ' || round(inference.p_smallest, 4)
            when inference.p > inference.alpha then 'p is above ' || inference.alpha
            when claimed.centre between inference.low and inference.high
                then 'the interval holds ' || format('{:g}', claimed.centre)
        end as lacks,
        claimed.side * (inference.estimate - claimed.centre) > 0 as agrees,
        claimed.side * (inference.estimate - claimed.centre) < 0 as differs
    from published_claims as claimed
    inner join questions
        on questions.figure = claimed.figure
    inner join inference
        on inference.study = questions.study
        and inference.answer = claimed.answer
        and inference.measure = claimed.measure
        and inference."grouping" = claimed."grouping"
        and inference.statistic = claimed.statistic
        and inference.block like claimed.blocks
),

both_kinds as (
    select * from claims
    union all by name
    select * from numbers
),

final as (
    select
        * exclude (unlike, lacks, agrees, differs),
        unlike = '' as comparable,
        nullif(concat_ws('; ', nullif(unlike, ''), lacks), '') as why,
        case
            when unlike != '' then 'not comparable'
            when lacks is not null then 'undecided'
            when agrees then 'agrees'
            when differs then 'differs'
            else 'undecided'
        end as verdict
    from both_kinds
    order by
        study,
        model nulls first,
        source,
        dataset,
        condition,
        quantity,
        claim
)

select * from final
