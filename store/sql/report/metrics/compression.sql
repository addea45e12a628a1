-- What is the best WQL ratio and top-10 overlap at about a half, and a quarter, of the attention?
select
    base_model,
    case when attention_ratio <= 0.26 then 'a_quarter' else 'a_half' end as attention_left,
    min(wql_ratio) as best_wql_ratio,
    max(overlap) as best_overlap
from compression_frontier
where base_model is not null
    and attention_ratio between 0.2 and 0.51
group by all
order by all
