"""Norms, residual connections and depth."""
