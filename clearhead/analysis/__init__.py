"""Analyses of a network from its traces."""
