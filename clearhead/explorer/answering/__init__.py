"""Answers to the questions of a page."""
