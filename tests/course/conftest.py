"""The course's small models, trained once for all tests."""

import os
from pathlib import Path

import pytest
from filelock import FileLock

from course.models import ready


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the four models: trained by the first process that asks."""
    own = tmp_path_factory.getbasetemp()
    common = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    with FileLock(common / "course.lock"):
        return ready(common / "course")
