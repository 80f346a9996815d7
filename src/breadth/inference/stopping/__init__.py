"""Stop rules: when enough votes are in, one per file."""
