-- What is the skill of each model?
select
    model,
    wql_vs_median,
    wql_vs_seasonal,
    sine_error
from skill
order by model
