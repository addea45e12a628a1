"""Correlations with intervals, permutation and sign tests, corrections: arrays in, numbers out (science.md 10)."""
