"""How a policy is evaluated on held-out problems, and what is concluded from it."""
