"""Drawing replies from the reasoner: many at once, in one process."""
