-- How fast does the rank, as a share of the width, grow with depth from 0 to 1?
-- Tolerance of the numerical rank: Yu et al. 2026, Fig. 2.
select
    split_part(measure, ' ', 1) as what,
    case when modality = 'series' then 'series' else 'other' end as kind,
    avg(estimate) as mean,
    count(*) filter (where estimate > 0) as rising,
    count(*) as models
from (
    select distinct measure, block, estimate
    from inference
    where answer = 'rank_tests'
        and "grouping" = 'model'
        and measure in ('input slope@0.01', 'attention slope@0.01')
        and estimate is not null
)
inner join checkpoints
    on checkpoints.model = block
group by all
order by all
