"""Weights of other libraries: files, field maps and tables that are read in both directions."""
