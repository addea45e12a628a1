-- What is the skill of each model?
select
    skill.model,
    skill.wql_vs_median,
    skill.wql_vs_seasonal,
    skill.sine_error,
    skill.sine_error_max,
    mean_skill.wql as real_wql,
    mean_skill.mae as real_mae
from skill
left join mean_skill
    on mean_skill.model = skill.model
    and mean_skill.kind = 'real'
order by skill.model
