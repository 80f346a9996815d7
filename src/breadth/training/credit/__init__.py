"""Mechanisms of the credit seat: rewards to advantages, groups kept or dropped; once per generation."""
