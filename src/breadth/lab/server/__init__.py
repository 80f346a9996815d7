"""The reasoner over HTTP, as an OpenAI-compatible server."""
