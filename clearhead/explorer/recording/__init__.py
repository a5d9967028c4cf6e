"""The values of a forward pass, and how each was computed."""
