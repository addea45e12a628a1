-- Mean scores of models pretrained with narrow heads, relative to the dense model, with 95 % intervals
select
    lines.model,
    lines.base_model,
    lines.line,
    lines.schedule,
    lines.kinds,
    lines.is_reused,
    lines.is_shared,
    loss.measure as quantity,
    count(*) over (partition by lines.family, lines.line, loss.measure) as n_models,
    loss.n,
    loss.ratio,
    loss.low,
    loss.high
from pretrained_lines as lines
left join pretrained_loss as loss
    using (study, family, line)
where lines.study = $study
order by loss.measure desc, lines.schedule, lines.size desc, lines.line, lines.model
