"""SGLang: how its server is spoken to."""
