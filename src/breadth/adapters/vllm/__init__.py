"""vLLM: how its server is spoken to."""
