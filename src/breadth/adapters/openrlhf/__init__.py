"""OpenRLHF: its launch scripts."""
