-- Published numbers beside ours
select
    figure,
    claim,
    source,
    model,
    dataset,
    condition,
    quantity,
    published,
    published_text,
    measured,
    low,
    high,
    n,
    p,
    comparable,
    verdict,
    why,
    note,
    run
from published_vs_measured
where published is not null
