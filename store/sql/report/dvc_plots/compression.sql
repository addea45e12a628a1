-- WQL against the share of the attention that is left
select
    base_model || ' ' || method as line,
    attention_ratio,
    any_value(size_ratio) as size_ratio,
    avg(wql_ratio) as wql_ratio
from compression_frontier
where wql_ratio is not null
group by all
order by all
