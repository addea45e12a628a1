-- What the paper says, and what was measured
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
where study = $study
