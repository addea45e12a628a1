"""Correlations with intervals, permutation tests, sign tests and corrections of p-values.

The functions take arrays. They return numbers, or rows of the table `inference`. The methods are described in
docs/science.md, "Correlation of isotropy and error".
"""
