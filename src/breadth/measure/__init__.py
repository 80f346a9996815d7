"""Instruments: pure functions over arrays that measure breadth, each with numbers worked out by hand."""
