-- Which numbers does the isotropy paper print, for which family, data set (by its names there), condition and layer?
-- depth: number of layers of the family's model in the paper, by Table 1. Figures 3b and 5 print
-- two different NMSE values for the same cell (model, data set and condition).
with table_1 (family, depth, published_text) as (
    -- Table 1 prints the same number for every layer of a family.
    values
        ('chronos-t5', 12, '4'),
        ('chronos-bolt', 12, '1'),
        ('patchtst', 2, '1'),
        ('moirai', 6, '1'),
        ('lag-llama', 8, '2')
),

quoted (figure, source, family, dataset, context, noise, quantity, published_text) as (
    values
        ('isotropy Fig. 2', 'section 4.3, layer 8', 'lag-llama', 'finance-1', null, 0.0, 'variance in 3 components', '0.94'),
        ('isotropy Fig. 2', 'section 4.3, layer 2', 'moirai', 'finance-1', null, 0.0, 'variance in 3 components', '0.83'),
        ('isotropy Fig. 3', 'section 5.1, Fig. 3b', 'chronos-t5', 'seasonality-1', 500, 0.0, 'nmse', '0.0000066'),
        ('isotropy Fig. 3', 'section 5.1, Fig. 3b', 'chronos-t5', 'seasonality-1', 500, 0.0, 'zeta_adjusted', '-0.00076'),
        ('isotropy Fig. 3', 'section 5.1, Fig. 3b', 'chronos-t5', 'seasonality-2', 500, 0.0, 'nmse', '0.00012'),
        ('isotropy Fig. 3', 'section 5.1, Fig. 3b', 'chronos-t5', 'seasonality-2', 500, 0.0, 'zeta_adjusted', '0.0047'),
        ('isotropy Fig. 5', 'section 5.1', 'chronos-t5', 'seasonality-1', 500, 0.0, 'nmse', '0.000066'),
        ('isotropy Fig. 5', 'section 5.1', 'chronos-t5', 'seasonality-1', 500, 0.0, 'zeta_adjusted', '-0.00076'),
        ('isotropy Fig. 5', 'section 5.1', 'chronos-t5', 'seasonality-1', 100, 0.0, 'nmse', '0.0793'),
        ('isotropy Fig. 5', 'section 5.1', 'chronos-t5', 'seasonality-1', 100, 0.0, 'zeta_adjusted', '0.0011'),
        ('isotropy Fig. 5', 'section 5.1', 'chronos-t5', 'linear-2', 500, 0.0, 'nmse', '0.000025'),
        ('isotropy Fig. 5', 'section 5.1', 'chronos-t5', 'linear-2', 500, 0.0, 'zeta_adjusted', '0.2474'),
        ('isotropy Fig. 5', 'section 5.1', 'chronos-t5', 'linear-2', 100, 0.0, 'nmse', '0.000009'),
        ('isotropy Fig. 5', 'section 5.1', 'chronos-t5', 'linear-2', 100, 0.0, 'zeta_adjusted', '0.0644'),
        ('isotropy Fig. 6', 'section 5.1', 'chronos-t5', 'trend-2', null, 0.0, 'nmse', '0.000024'),
        ('isotropy Fig. 6', 'section 5.1', 'chronos-t5', 'trend-2', null, 0.0, 'zeta_adjusted', '-0.00022'),
        ('isotropy Fig. 6', 'section 5.1', 'chronos-t5', 'trend-2', null, 0.05, 'nmse', '0.0012'),
        ('isotropy Fig. 6', 'section 5.1', 'chronos-t5', 'trend-2', null, 0.05, 'zeta_adjusted', '0.0040'),
        ('isotropy Fig. 7', 'section 5.2, Fig. 7e', 'moirai', 'retail-1', null, 0.0, 'nmse', '0.0061'),
        ('isotropy Fig. 7', 'section 5.2, Fig. 7e', 'moirai', 'retail-1', null, 0.0, 'zeta_adjusted', '0.0020'),
        ('isotropy Fig. 7', 'section 5.2, Fig. 7e', 'moirai', 'retail-2', null, 0.0, 'nmse', '0.1255'),
        ('isotropy Fig. 7', 'section 5.2, Fig. 7e', 'moirai', 'retail-2', null, 0.0, 'zeta_adjusted', '0.1931'),
        ('isotropy Fig. 8', 'section 5.2', 'lag-llama', 'energy-1', 144, 0.0, 'zeta_adjusted', '0.0097'),
        ('isotropy Fig. 8', 'section 5.2', 'lag-llama', 'energy-1', 96, 0.0, 'zeta_adjusted', '0.0220'),
        ('isotropy Fig. 8', 'section 5.2', 'lag-llama', 'transport-1', 144, 0.0, 'zeta_adjusted', '0.0026'),
        ('isotropy Fig. 8', 'section 5.2', 'lag-llama', 'transport-1', 96, 0.0, 'zeta_adjusted', '0.0103'),
        ('isotropy Fig. 8', 'section 5.2', 'lag-llama', 'nature-2', 144, 0.0, 'zeta_adjusted', '0.1091'),
        ('isotropy Fig. 8', 'section 5.2', 'lag-llama', 'nature-2', 96, 0.0, 'zeta_adjusted', '0.0112'),
        ('isotropy Fig. 8', 'section 5.2', 'lag-llama', 'finance-1', 144, 0.0, 'zeta_adjusted', '0.2014'),
        ('isotropy Fig. 8', 'section 5.2', 'lag-llama', 'finance-1', 96, 0.0, 'zeta_adjusted', '0.0133')
),

numbers as (
    select
        'isotropy Table 1' as figure,
        'Table 1, layer ' || layers.layer as source,
        family,
        'finance-1' as dataset,
        null as context,
        0.0 as noise,
        layers.layer,
        'd(0.8)' as quantity,
        published_text
    from table_1,
        lateral (select unnest(range(1, depth + 1)) as layer) as layers
    union all by name
    select * from quoted
),

final as (
    select
        numbers.figure,
        numbers.source,
        numbers.family,
        numbers.dataset,
        numbers.context,
        numbers.noise::double as noise,
        numbers.layer,
        table_1.depth,
        numbers.quantity,
        numbers.published_text,
        numbers.published_text::double as published
    from numbers
    inner join table_1
        on table_1.family = numbers.family
)

select * from final
