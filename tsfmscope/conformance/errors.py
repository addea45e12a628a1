"""Errors with which a check of a family reports its outcome."""

from __future__ import annotations


class Failed(Exception):
    """Error of a check whose demand is not met; the message states expected, got and where."""


class NotApplicable(Exception):
    """Error of a check of something that the family does not claim to have; the message names it."""
