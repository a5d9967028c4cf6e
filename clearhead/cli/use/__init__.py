"""Commands that use a model."""
