"""verl: what its trainers leave on disk, and our chains inside them."""
