"""Keep a reasoning model's breadth in RL training and spend it well at inference."""

__version__ = "0.1.0"
