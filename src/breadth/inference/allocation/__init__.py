"""Allocators: how to spend one budget over many tasks, one per file."""
