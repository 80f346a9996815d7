"""Choosing an inference policy from a sweep: its evidence, the options, the choice, fitted stop rules and the report."""
