"""Mechanisms of the loss seat: token weights, one surrogate, extra terms; per micro-batch, updated per optimizer step."""
