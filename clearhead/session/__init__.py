"""A run from its recipe to its judged model, as the command line and Python both begin it."""
