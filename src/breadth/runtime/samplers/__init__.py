"""Samplers: sources of candidates, one back-end per file."""
