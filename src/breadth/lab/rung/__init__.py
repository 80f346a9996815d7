"""The second rung: the same experiment on a real small language model, sums in place of routes."""
