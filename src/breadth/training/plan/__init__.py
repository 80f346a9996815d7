"""Mechanisms of the plan stage: what to sample; once per generation."""
