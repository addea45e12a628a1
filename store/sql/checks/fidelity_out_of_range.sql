-- Every overlap is a share, no error or perplexity is negative, and every null of fidelity has its reason.
with final as (
    select *
    from fidelity
    where overlap not between 0 and 1
        or state_error < 0
        or log_ppl < 0
        or base_log_ppl < 0
        or (reason is null and (overlap is null or lppl is null or state_error is null))
)

select * from final
