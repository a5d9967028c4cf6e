"""Layers that mix positions by a state, one file each."""
