-- What do the two papers claim in words, and which statistic of `inference` tests it, on which side of which value?
-- side: the claim holds if the statistic lies below (-1) or above (+1) centre.
-- Isotropy is measured by ζ′ minus its null mean, not by the printed |ζ′|, which is 0 if floor and
-- anisotropy cancel (docs/science.md, Adjusted cosine). Correlations are with log NMSE. Ranks are shares
-- of the largest rank that a matrix allows, at the tolerance after the @.
select
    *,
    -- A pattern for LIKE.
    case
        when answer = 'flow_against_flat' then 'flow less flat%'
        when "grouping" = 'x_axis' and claim like '% Chronos %' then 'chronos%'
        else '%'
    end as blocks
from printed_claims
