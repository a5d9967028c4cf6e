"""Text in, batches of token ids out: tokenizers, sources, the report before training, batches."""
