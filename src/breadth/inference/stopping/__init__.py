"""Stop rules: when enough votes are in, one rule a file."""
