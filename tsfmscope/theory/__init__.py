"""Numerical experiments on the theorems of Yu et al. 2026: both sides of every bound, and Appendix J."""
