"""Samplers: where candidates come from, one back-end a file."""
