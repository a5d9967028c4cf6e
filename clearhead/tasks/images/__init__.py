"""Classification of pictures."""
