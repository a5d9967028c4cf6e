"""Cost and size."""
