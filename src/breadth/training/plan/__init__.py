"""Mechanisms of the plan seat: what to sample; once per generation."""
