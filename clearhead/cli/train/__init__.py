"""Commands that train: runs, recipes, tokenizers."""
