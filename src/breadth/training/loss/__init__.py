"""Mechanisms of the loss stage: token weights, one surrogate, extra terms; per micro-batch, updated per optimizer step."""
