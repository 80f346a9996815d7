"""llama.cpp: how its server is spoken to."""
