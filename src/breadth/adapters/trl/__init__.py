"""TRL: what its trainers leave on disk."""
