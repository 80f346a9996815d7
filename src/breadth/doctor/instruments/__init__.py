"""Instruments on a run folder: each file reads a run and returns sections of a report; none of them judges."""
