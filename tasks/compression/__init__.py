"""Pretraining now; low-rank layers, absorbed heads and export as they come."""
