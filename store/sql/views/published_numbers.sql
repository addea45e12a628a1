-- Which numbers does the isotropy paper print, for which family, data set (by its names there) and condition?
-- Table 1 prints the same number for all layers of a family. Figures 3b and 5 quote one cell with two NMSE values.
with printed (figure, source, family, dataset, context, noise, quantity, published_text) as (
    values
        ('isotropy Table 1', 'Table 1, layers 1 to 12', 'chronos-t5', 'finance-1', null, 0.0, 'd(0.8)', '4'),
        ('isotropy Table 1', 'Table 1, layers 1 to 12', 'chronos-bolt', 'finance-1', null, 0.0, 'd(0.8)', '1'),
        ('isotropy Table 1', 'Table 1, layers 1 to 2', 'patchtst', 'finance-1', null, 0.0, 'd(0.8)', '1'),
        ('isotropy Table 1', 'Table 1, layers 1 to 6', 'moirai', 'finance-1', null, 0.0, 'd(0.8)', '1'),
        ('isotropy Table 1', 'Table 1, layers 1 to 8', 'lag-llama', 'finance-1', null, 0.0, 'd(0.8)', '2'),
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

final as (
    select
        * replace (noise::double as noise),
        published_text::double as published
    from printed
)

select * from final
