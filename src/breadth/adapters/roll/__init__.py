"""Everything about ROLL: its configuration."""
