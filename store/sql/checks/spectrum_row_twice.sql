-- No matrix is decomposed twice for one study.
select
    study,
    model,
    dataset,
    condition,
    what,
    matrix,
    attention,
    stack,
    layer,
    normed,
    head,
    expert,
    tokens,
    step,
    count(*) as n
from spectra
group by all
having count(*) > 1
