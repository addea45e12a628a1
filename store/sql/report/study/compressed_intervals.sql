-- Scores of compressed models relative to the original, with 95 % intervals over data sets
select
    model,
    case
        when measure like '%WQL%' then 'wql_ratio'
        when measure like '%MASE%' then 'mase_ratio'
    end as quantity,
    n,
    estimate,
    low,
    high
from compression_loss
where study = $study
    and measure <> 'overlap'
union all by name
select
    model,
    lower(measure) as quantity,
    n,
    estimate,
    low,
    high
from compression_fidelity
where study = $study
order by quantity, model
