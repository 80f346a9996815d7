"""Models of Hugging Face transformers: scoring texts with a local model."""
