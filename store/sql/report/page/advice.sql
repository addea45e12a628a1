-- How good is the choice by isotropy?
select
    measure,
    "grouping",
    rule,
    n,
    n_candidates,
    n_unfilled,
    exp(regret) as times,
    exp(low) as low,
    exp(high) as high,
    exp(advised_less) as advice_over_it,
    exp(advised_less_low) as advice_over_it_low,
    exp(advised_less_high) as advice_over_it_high,
    p,
    p_bh,
    p_models,
    advice_is
from advice_regret
where study = $study
