-- How many bounds are violated at a random instance?
select
    form,
    count(*) filter (where violations > 0) as statements_violated,
    count(*) as statements
from theory_violations
where kind = 'instance'
group by form
order by form
