"""One folder per trainer or server: everything about it and nothing else."""
