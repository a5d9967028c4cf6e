"""Encoder-decoders of text."""
