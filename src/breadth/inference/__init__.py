"""The inference loop: strategies that decide what to draw next and what to answer, without any I/O."""
