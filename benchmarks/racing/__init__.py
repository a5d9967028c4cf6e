"""How contestants take turns, and what a race showed."""
