"""verl: what its trainers leave on disk."""
