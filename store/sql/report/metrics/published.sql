-- How many printed numbers and claims have each verdict?
select
    count(*) filter (where verdict = 'agrees') as agrees,
    count(*) filter (where verdict = 'differs') as differs,
    count(*) filter (where verdict = 'no effect') as no_effect,
    count(*) filter (where verdict = 'undecided') as undecided,
    count(*) filter (where verdict = 'not comparable') as not_comparable
from published_vs_measured
