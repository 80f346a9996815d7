"""The demo: its plan, its work, and what it shows."""
