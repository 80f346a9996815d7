"""``python -m breadth`` is the command ``breadth``."""

from breadth.cli.main import run

if __name__ == "__main__":  # a process that we spawn imports this file under another name
    run()
