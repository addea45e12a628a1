"""Kinds of jobs: one module each, with spec and function. Nothing here imports the store."""
