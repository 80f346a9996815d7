"""Mechanisms of the credit stage: rewards to advantages, groups kept or dropped; once per generation."""
