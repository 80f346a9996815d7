"""The tiny reasoner: its network, its weights and how they were made."""
