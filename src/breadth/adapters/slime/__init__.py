"""Everything about slime: its configuration."""
