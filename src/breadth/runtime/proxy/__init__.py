"""The proxy: an OpenAI-compatible server in front of any other that spends breadth on every question by a policy."""
