"""Choosing an inference policy from a sweep: evidence, options, choice, fitted stop rules and the report."""
