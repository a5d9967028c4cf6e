"""Checkpoints of other libraries: the families of architectures, and the files that hold their weights."""
