"""Prescriptions in the words of whoever has to follow them."""
