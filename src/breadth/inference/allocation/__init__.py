"""Spending one budget over many tasks: who gets the next draws."""
