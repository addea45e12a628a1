-- How often does the bound of Lemma 1 on the Jacobian of attention fail for real heads, as printed and as proved?
-- The largest share of the right side that a norm reaches is in the columns *_largest_share. A
-- check verifies that the safe bound never fails.
with final as (
    select
        model,
        any_value(base_model) as base_model,
        any_value(size_parameter) as size_parameter,
        any_value(size_rule) as size_rule,
        stack,
        n_tokens,
        count(norm) as n,
        count(*) - count(norm) as n_null,
        count(*) filter (where violates_printed) as printed_violations,
        count(*) filter (where violates_appendix) as appendix_violations,
        count(*) filter (where violates_safe) as safe_violations,
        max(norm / printed) as printed_largest_share,
        max(norm / appendix) as appendix_largest_share,
        max(norm / safe) as safe_largest_share,
        median(norm / safe) as safe_median_share,
        max(norm) as norm_largest,
        min(reason) as reason
    from lemma1_instances
    group by all
    order by model, stack, n_tokens
)

select * from final
