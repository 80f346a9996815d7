"""What is known of a run: its metrics and rollouts, read once, and what several findings measure on them."""
