"""Batches of token ids from data: sources, the report before training, batches."""
