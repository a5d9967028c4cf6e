"""Decoders with experts or latent attention."""
