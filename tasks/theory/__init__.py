"""The theorems of rank_structure.md as numerical experiments: both sides of every bound, and Appendix J."""
