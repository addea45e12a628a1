-- Does Lemma 1 bound attention's Jacobian?
select
    model,
    stack,
    n_tokens,
    n,
    n_null,
    printed_violations,
    appendix_violations,
    safe_violations,
    printed_largest_share,
    safe_largest_share,
    reason
from lemma1
anti join snapshot_models
    using (model)
order by model, stack, n_tokens
