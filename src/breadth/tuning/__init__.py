"""Choosing an inference policy from the run folder of a sweep: evidence, options, choice, what the policy needs fitted, and the page."""
