"""Tinker: what its cookbook's training loops leave on disk."""
