"""Strategies: what to sample next and which answer to return, one per file."""
