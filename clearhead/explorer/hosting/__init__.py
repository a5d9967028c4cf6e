"""Carries a page and its questions: by a server on this machine, or by a notebook."""
