"""Faster ways to compute a step of decoding. Each one checks that it applies."""
