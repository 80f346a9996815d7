"""Rules about settings: what does nothing where it stands, and what contradicts something else."""
