"""Rules that end a completion while it is being written, one a file."""
