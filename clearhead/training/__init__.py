"""Training: the loop and its parts, each usable alone."""
