-- What do the papers print or claim, what did we measure, and do the two agree?
-- A printed number has one row for each model that could show it, or one row with the verdict "not
-- measured". It is comparable if the model is a released checkpoint and the data are the paper's
-- own. It agrees if it lies inside our interval, and is undecided if we have no interval.
-- A claim agrees if the interval and p <= alpha support its side, and differs if they support the other
-- side. Otherwise it has no effect if the interval, and an effect that would be found in 80 % of samples, lie within
-- the claim's margin of what is expected without one, and is undecided if not.
-- A claim about every model is tested over families in a study of at least six, and over models in one of at
-- least six models of fewer families.
-- why: reason for the verdict. note: why a number has no interval, or both of our scores if the
-- paper does not name the score. run: what to run to get a comparable number.
with claims as (
    select
        studies.study,
        claimed.figure,
        claimed.claim,
        claimed.source,
        case when inference."grouping" = 'model' then inference.block end as model,
        case
            when inference."grouping" in ('context', 'noise') then inference.block
            when claimed.answer in ('flow_against_flat', 'compression_loss') then inference.block
            when claimed.answer = 'hypothesis_tests' then replace(inference."grouping", '_', ' ')
            when inference."grouping" = 'family' then 'over families'
            when inference."grouping" = 'models' then 'over models'
        end as condition,
        claimed.measure,
        case
            when claimed.answer in ('flow_against_flat', 'compression_loss')
                then concat_ws(' ', split_part(claimed.measure, '@', 1), claimed.statistic)
            when claimed.measure like '% slope@%' then 'slope'
            else claimed.statistic
        end as quantity,
        case when claimed.side > 0 then '> ' else '< ' end || format('{:g}', claimed.centre) as published_text,
        inference.estimate as measured,
        inference.low,
        inference.high,
        inference.n,
        inference.p,
        inference.detectable,
        true as comparable,
        case
            when inference.estimate is null then coalesce(inference.reason, 'not measured')
            when inference.p is null or inference.low is null then coalesce(inference.reason, 'no test')
            when inference.p_smallest > inference.alpha
                then 'the smallest p that the test can give is ' || round(inference.p_smallest, 4)
            when inference.p > inference.alpha then 'p is above ' || inference.alpha
            when claimed.centre between inference.low and inference.high
                then 'the interval holds ' || format('{:g}', claimed.centre)
        end as doubt,
        sign(inference.estimate - claimed.centre) as side_found,
        case
            when doubt is null and claimed.side = side_found then 'agrees'
            when doubt is null then 'differs'
            when inference.low > claimed.centre - claimed.margin
                and inference.high < claimed.centre + claimed.margin
                and inference.detectable - claimed.centre <= claimed.margin
                then 'no effect'
            else 'undecided'
        end as verdict,
        case verdict
            when 'undecided' then doubt
            || coalesce('; an effect of ' || round(inference.detectable, 3) || ' would be found in 80 % of samples', '')
            when 'no effect'
                then 'the interval, and what would be found in 80 % of samples, lie within '
                || format('{:g}', claimed.margin) || ' of ' || format('{:g}', claimed.centre)
            else
                'the interval lies ' || case when side_found > 0 then 'above ' else 'below ' end
                || format('{:g}', claimed.centre) || ', and p is at most ' || inference.alpha
        end as why
    from published_claims as claimed
    inner join studies
        on studies.figure = claimed.figure
    inner join inference
        on inference.study = studies.study
        and inference.answer = claimed.answer
        and inference.measure = claimed.measure
        and inference."grouping" = claimed."grouping"
        and inference.statistic = claimed.statistic
        and inference.block like claimed.blocks
    qualify inference."grouping" != 'model'
        or count(*) filter (where inference."grouping" in ('family', 'models')) over (
            partition by studies.study, claimed.claim
        ) = 0
),

numbers as (
    select
        * exclude (unlike, lacks, remedy, no_interval, told, depth, profile, context, noise),
        quantity as measure,
        case
            when lacks is not null then 'not measured'
            when unlike != '' then 'not comparable'
            when low is null then 'undecided'
            when published between low and high then 'agrees'
            else 'differs'
        end as verdict,
        verdict not in ('not measured', 'not comparable') as comparable,
        case verdict
            when 'not measured' then lacks
            when 'not comparable' then unlike
            when 'undecided' then 'no interval: ' || no_interval
            when 'agrees' then 'the printed number lies inside our interval'
            else 'the printed number lies ' || case when published > high then 'above' else 'below' end || ' our interval'
        end as why,
        case
            when measured is not null and low is null then 'no interval: ' || no_interval
            when verdict = 'not comparable' then 'ours: ' || told
        end as note,
        case when not comparable then remedy end as run
    from published_beside_measured
),

both_kinds as (
    select * exclude (doubt, side_found) from claims
    union all by name
    select * from numbers
),

final as (
    select
        study,
        figure,
        claim,
        source,
        model,
        dataset,
        condition,
        measure,
        quantity,
        published,
        published_text,
        measured,
        low,
        high,
        n,
        p,
        detectable,
        comparable,
        verdict,
        why,
        note,
        run
    from both_kinds
    order by
        figure,
        study,
        published is not null,
        -- Only claims are sorted by model here.
        case when published is null then model end nulls last,
        family,
        layer,
        source,
        both_kinds.dataset,
        line,
        size,
        growth,
        condition,
        quantity,
        model nulls first,
        claim
)

select * from final
