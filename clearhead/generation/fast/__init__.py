"""Faster ways to compute a step of decoding, each of which proves that it applies."""
