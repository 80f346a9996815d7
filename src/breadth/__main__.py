"""``python -m breadth`` is the command ``breadth``."""

from breadth.cli.main import run

run()
