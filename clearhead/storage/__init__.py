"""Checkpoints on a disk: tensors, their manifest, and what a disk can refuse."""
