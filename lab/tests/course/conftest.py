"""The course's small models, each trained once for all tests."""

import os
from pathlib import Path

import pytest
from filelock import FileLock

from clearhead_lab.course import site
from clearhead_lab.course.models import named, ready


@pytest.fixture(scope="session")
def models(tmp_path_factory) -> Path:
    """The folder with the small models; `trained` fills it."""
    own = tmp_path_factory.getbasetemp()
    return (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "course"


def trained(models: Path, page: str) -> Path:
    """The folder, with the models that a page names: each is trained by the first process that asks for it."""
    models.mkdir(exist_ok=True)
    for name in named(site.source(page)):
        with FileLock(models.with_name(f"course-{name}.lock")):
            ready(models, [name])
    return models
