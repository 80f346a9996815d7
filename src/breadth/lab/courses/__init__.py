"""Courses of reinforcement learning through TRL, and faults put into them on purpose."""
