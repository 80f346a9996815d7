"""Everything about SkyRL: its configuration."""
