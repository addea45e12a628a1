-- Which of two data sets of a domain, two contexts or two noise levels is more isotropic, and which has less error?
-- Signs are those of b minus a. b is the shorter context, the noisier condition, or the later of two
-- data sets by name.
-- is_filled: whether a series is at least as long as the context, in both conditions.
-- half: whether tests may explore the data sets, or they are kept for confirming hypotheses.
-- cluster: what all models of a pair share, namely the two data sets, or the data set of both
-- conditions.
with units as (
    select
        measured.study,
        measured.measure,
        measured.model,
        measured.dataset,
        measured.condition,
        measured.context,
        measured.noise,
        measured.isotropy,
        measured.log_nmse,
        measured.is_filled,
        case when confirming.dataset is null then 'explored' else 'confirmed' end as half
    from nmse_against_isotropy as measured
    anti join snapshot_models
        on snapshot_models.model = measured.model
    left join confirming_datasets as confirming
        using (study, dataset)
),

named as (
    select distinct units.study, units.half, units.dataset, datasets.domain
    from units
    inner join datasets
        on datasets.dataset = units.dataset
    where datasets.domain != ''
),

numbered as (
    select
        study,
        half,
        dataset,
        domain,
        row_number() over (
            partition by study, half, domain
            order by dataset
        ) as position
    from named
),

neighbours as (
    select
        odd.study,
        odd.dataset as dataset_a,
        even.dataset as dataset_b
    from numbered as odd
    inner join numbered as even
        on even.study = odd.study
        and even.half = odd.half
        and even.domain = odd.domain
        and even.position = odd.position + 1
    -- Pairs do not share data sets; if their number is odd, the last one has no pair.
    where odd.position % 2 = 1
),

pairs as (
    select
        'dataset' as kind,
        'data sets of a domain' as pair,
        neighbours.dataset_a || ' / ' || neighbours.dataset_b as "cluster",
        a.*,
        b.isotropy as isotropy_b,
        b.log_nmse as log_nmse_b,
        b.is_filled as is_filled_b
    from neighbours
    inner join units as a
        on a.study = neighbours.study
        and a.dataset = neighbours.dataset_a
    inner join units as b
        on b.study = neighbours.study
        and b.dataset = neighbours.dataset_b
        and b.measure = a.measure
        and b.model = a.model
        and b.condition = a.condition
    union all
    select
        case when b.context < a.context then 'context' else 'noise' end as kind,
        a.condition || ' > ' || b.condition as pair,
        a.dataset as "cluster",
        a.*,
        b.isotropy as isotropy_b,
        b.log_nmse as log_nmse_b,
        b.is_filled as is_filled_b
    from units as a
    inner join units as b
        on b.study = a.study
        and b.measure = a.measure
        and b.model = a.model
        and b.dataset = a.dataset
        and (
            (b.context < a.context and b.noise = a.noise)
            or (b.context = a.context and b.noise > a.noise)
        )
),

final as (
    select
        study,
        kind,
        measure,
        pair,
        half,
        "cluster",
        model,
        dataset,
        condition,
        is_filled and is_filled_b as is_filled,
        isotropy_b - isotropy as isotropy_change,
        log_nmse_b - log_nmse as log_nmse_change,
        sign(isotropy_b - isotropy)::integer as isotropy_sign,
        sign(log_nmse_b - log_nmse)::integer as log_nmse_sign,
        -sign(isotropy_b - isotropy)::integer * sign(log_nmse_b - log_nmse)::integer as agreement
    from pairs
)

select * from final
