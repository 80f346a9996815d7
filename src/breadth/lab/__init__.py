"""The lab: a task with several routes, a tiny reasoner that can be trained in minutes, and the experiments behind the claims."""
