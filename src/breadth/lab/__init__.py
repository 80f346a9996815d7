"""The lab: a task with several routes, a tiny reasoner that trains in minutes, the experiments behind the claims."""
