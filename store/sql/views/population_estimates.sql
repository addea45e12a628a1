-- Which estimate does SQL compute for each test of the population?
-- Tests are of the exploring half of the data sets, and of the other half for hypotheses.
with units as (
    select
        dataset || ' / ' || condition as cell,
        run,
        family,
        size,
        is_final,
        validation_loss,
        isotropy,
        unnest([log_nmse, log_wql]) as log_error,
        -- All values that a test belongs to, as one column.
        struct_pack(study := study, measure := measure, half := half, error := unnest(['nmse', 'wql'])) as test
    from population_units
),

-- Across runs: the last weights of every run.
complete as (
    select
        *,
        count(distinct run) over (partition by test) as n_runs,
        count(*) over (partition by test, cell) as n_in_cell
    from units
    where is_final
        and isfinite(isotropy)
        and isfinite(log_error)
),

kept_cells as (
    select
        *,
        count(distinct cell) over (partition by test) as n_cells,
        count(*) over (partition by test, run) as n_of_run
    from complete
    where n_in_cell >= 0.9 * n_runs
),

grouped as (
    select
        *,
        unnest(['across_runs', 'inside_families', 'across_seeds']) as "grouping",
        unnest(['', family, family || ' ' || size]) as run_group
    from kept_cells
    where n_of_run = n_cells
),

ranks as (
    select
        *,
        count(*) over in_group as n_in_group,
        rank() over by_isotropy + (count(*) over (by_isotropy range between current row and current row) - 1) / 2
            - (count(*) over in_group + 1) / 2 as rank_isotropy,
        rank() over by_error + (count(*) over (by_error range between current row and current row) - 1) / 2
            - (count(*) over in_group + 1) / 2 as rank_error
    from grouped
    window
        in_group as (partition by test, cell, "grouping", run_group),
        by_isotropy as (partition by test, cell, "grouping", run_group order by isotropy),
        by_error as (partition by test, cell, "grouping", run_group order by log_error)
),

cells as (
    select
        test,
        "grouping",
        count(*) as n,
        max(n_in_group) as largest_group,
        sum(rank_isotropy * rank_error)
            / nullif(sqrt(sum(rank_isotropy * rank_isotropy) * sum(rank_error * rank_error)), 0) as rho
    from ranks
    group by
        test,
        "grouping",
        cell
),

across as (
    select
        test,
        "grouping",
        sum(n)::bigint as n,
        case when max(n) >= 4 and max(largest_group) > 1 then avg(rho) end as estimate
    from cells
    group by
        test,
        "grouping"
),

-- Within runs: all snapshots of a run on one data set, where there are at least four.
snapshots as (
    select
        *,
        rank() over by_isotropy + (count(*) over (by_isotropy range between current row and current row) - 1) / 2 as x,
        rank() over by_error + (count(*) over (by_error range between current row and current row) - 1) / 2 as y,
        rank() over by_loss + (count(*) over (by_loss range between current row and current row) - 1) / 2 as v
    from units
    where isfinite(isotropy)
        and isfinite(log_error)
        and isfinite(validation_loss)
    window
        by_isotropy as (partition by test, cell, run order by isotropy),
        by_error as (partition by test, cell, run order by log_error),
        by_loss as (partition by test, cell, run order by validation_loss)
),

correlations as (
    select
        test,
        run,
        corr(x, y) as xy,
        -- A loss that does not change takes nothing out.
        case when isfinite(corr(x, v)) then corr(x, v) else 0 end as xv,
        case when isfinite(corr(y, v)) then corr(y, v) else 0 end as yv
    from snapshots
    group by
        test,
        run,
        cell
    having count(*) >= 4
),

partials as (
    select
        test,
        run,
        case
            when isfinite(xy) and 1 - xv * xv > 1e-9 and 1 - yv * yv > 1e-9
                then (xy - xv * yv) / sqrt((1 - xv * xv) * (1 - yv * yv))
        end as rho
    from correlations
),

runs as (
    select
        test,
        count(rho) as n,
        avg(rho) as rho
    from partials
    group by
        test,
        run
),

within as (
    select
        test,
        'within_runs' as "grouping",
        sum(n)::bigint as n,
        case when count(rho) >= 4 then avg(rho) end as estimate
    from runs
    group by test
),

tests as (
    select unnest(test), * exclude (test)
    from across
    union all by name
    select unnest(test), * exclude (test)
    from within
),

final as (
    select
        study,
        case half when 'explored' then 'population_correlation' else 'hypothesis_tests' end as answer,
        measure,
        "grouping",
        half as block,
        case error when 'wql' then 'spearman_wql' else 'spearman' end as statistic,
        n,
        estimate
    from tests
    where half = 'explored'
        or (study, measure, "grouping", error) in (
            select (study, measure, "grouping", error)
            from hypotheses
        )
)

select * from final
