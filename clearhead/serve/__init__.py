"""A model behind a port, for one machine: the completions API that clients know, and translations."""
