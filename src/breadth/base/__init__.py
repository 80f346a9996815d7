"""The base of every package: errors, stats that add up, settings, catalogues. It imports no other package of ours."""
