"""The proxy: an OpenAI-compatible server in front of any other that answers every question by a policy."""
