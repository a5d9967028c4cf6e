"""Serves a model on one machine: the completions API, and translations."""
