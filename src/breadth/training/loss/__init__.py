"""Mechanisms of the loss stage: token weights, one surrogate, extra terms; applied per micro-batch."""
