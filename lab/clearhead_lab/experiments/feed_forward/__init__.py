"""Feed-forward."""
