"""Estimates what training costs, without running it: memory of each GPU, communication and time."""
