"""Compression of models: truncation of trained ones, pretraining of small ones, export, fidelity."""
