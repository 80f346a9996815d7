"""prime-rl and verifiers: what training runs and evaluations leave on disk."""
