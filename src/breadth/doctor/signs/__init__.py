"""What several findings read from a run in the same way: scores, shares of groups, tokens, votes, sweeps."""
