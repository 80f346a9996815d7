"""Strategies: what to draw next and what to answer, one a file."""
