"""Weights of other libraries: their files, and the field maps and tables that convert both ways."""
