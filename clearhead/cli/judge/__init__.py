"""Commands that judge a model, a table or a checkpoint."""
