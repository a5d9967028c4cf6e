"""Checkpoints on a disk: tensors, their manifest, and errors of the disk."""
