"""NeMo-RL: its configuration."""
