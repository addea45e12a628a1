"""Kinds of jobs that Ray runs: one module each, with its spec and its function.

`sweep` is the engine that runs them on Ray. Nothing here imports the store.
"""
