"""Tagging of words."""
