"""Folders whose files beside the weights were changed: the same answers as the reference library, or one line."""
