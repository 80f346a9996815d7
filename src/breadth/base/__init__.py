"""The ground every room stands on: errors, stats that add up, settings, catalogues (no room of ours below it)."""
