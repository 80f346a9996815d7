"""The SmolLM2 replication: the same experiment on a real small language model."""
