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
anti join population -- without snapshots of a population before the end of their training
    on population.model = lemma1.model
    and not population.is_final
order by model, stack, n_tokens
