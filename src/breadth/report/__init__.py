"""How results look: typed sections rendered to the terminal, to JSON and to one self-contained page."""
