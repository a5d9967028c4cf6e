"""Commands that give a model to others."""
