"""Classification of texts."""
