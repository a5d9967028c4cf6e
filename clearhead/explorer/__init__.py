"""Pages on which a model's own numbers can be looked at."""
