"""The version, which every part may read."""

__version__ = "1.0.0"
