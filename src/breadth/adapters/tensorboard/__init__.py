"""TensorBoard event files, whichever trainer wrote them."""
