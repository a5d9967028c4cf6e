"""The explorer on an input as one HTML file, which opens without a server and without a network."""

from clearhead.explorer.export.page import export_page

__all__ = ["export_page"]
