"""Blocks of params.yaml as typed objects, with the meaning and the valid values of each key."""
