"""Work of the platform: functions that turn arrays, models and tables into numbers, tables and plots.

`sweep` is the engine that runs them on Ray. Nothing here imports the store.
"""
