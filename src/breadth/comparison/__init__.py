"""Checkpoints and runs side by side: what each is worth by draws, by votes and by breadth, and which to use for a budget."""
