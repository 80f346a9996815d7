"""Everything about axolotl: its configuration."""
