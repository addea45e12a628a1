-- How much accuracy does truncating the attention cost, in Table 2 of Yu et al. 2026 and in our measurements?
-- rank_ratio is the paper's Ratio: mean rank divided by full width. Two thin factors of a square
-- matrix have twice this share of its parameters, so use attention_ratio to compare sizes.
-- The models of the paper (Yu et al. 2026) are base-sized, compressed by svd, and scored on the
-- Chronos benchmarks. Ours are the models of this run, compressed by every method, with all data
-- sets that have scores.
with printed as (
    select
        'published' as whose,
        family,
        benchmark as model,
        'svd' as method,
        ratio as rank_ratio,
        null::double as attention_ratio,
        wql_ratio,
        mase_ratio,
        overlap,
        lppl
    from published_compression
),

measured as (
    select
        'measured' as whose,
        checkpoints.family,
        frontier.model,
        frontier.method,
        frontier.rank_ratio,
        frontier.attention_ratio,
        frontier.wql_ratio,
        frontier.mase_ratio,
        frontier.overlap,
        frontier.lppl
    from compression_frontier as frontier
    inner join checkpoints
        on checkpoints.model = frontier.model
),

final as (
    select * from printed
    union all by name
    select * from measured
)

select * from final
order by family, whose, method, rank_ratio
