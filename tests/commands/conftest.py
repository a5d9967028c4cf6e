"""Every command runs in an empty folder."""

import pytest


@pytest.fixture(autouse=True)
def _here(empty_folder: object) -> None:
    """In an empty folder."""
