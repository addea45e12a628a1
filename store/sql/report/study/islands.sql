-- Tokens on three components
select path
from dumps -- three components of the states of these files, $layer layer, all tokens; $tokens random ones are shown
where model in $models
    and dataset in $datasets
    and condition in $conditions
    and kind = 'embeddings'
order by path
