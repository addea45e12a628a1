"""What Ray runs: one module per kind of job, with its spec and its function.

`sweep` is the engine that runs them on Ray. Nothing here imports the store.
"""
