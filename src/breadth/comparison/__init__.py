"""Checkpoints and runs compared: pass@k, maj@k and breadth of each, and which to use for a budget."""
