"""Experiments as trials: what one is, how many are run, resumed and summed up."""
