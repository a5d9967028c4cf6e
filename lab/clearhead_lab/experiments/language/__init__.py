"""Language, in networks of real text."""
