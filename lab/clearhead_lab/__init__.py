"""Worked examples and claims about the Transformer, executed and judged."""
