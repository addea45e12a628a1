-- Which numbers do Shelim et al. 2025 print, for which family, data set (by its names there), condition and layer?
-- Table 1 prints the same number for every layer of a family. Figures 3b and 5 print two different
-- NMSE values for the same cell (model, data set and condition).
select
    *,
    published_text::double as published
from printed_isotropy
