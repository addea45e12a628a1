"""Look inside time-series foundation models: isotropy, rank and compression.

`stages`, `tasks` and `store` next to this file are links to the folders of these names.
"""
