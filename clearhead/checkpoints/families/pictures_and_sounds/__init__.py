"""Networks that read pictures or sounds."""
