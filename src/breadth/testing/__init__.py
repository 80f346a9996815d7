"""Contracts for plug-in authors: one check per family."""
