"""Singular values, numerical ranks, angles, flow-of-ranks: arrays in, numbers out."""
