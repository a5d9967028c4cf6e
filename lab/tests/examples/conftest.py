"""The worked examples of the source documents: beside the checkout, never in it."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

FOLDER = "CLEARHEAD_SHARED_SEEDS"


@pytest.fixture(scope="session")
def worked_examples() -> dict[str, dict[str, Any]]:
    """Every record by id; skips where the documents are not there."""
    beside = Path(__file__).resolve().parents[4] / "shared" / "seeds"
    path = Path(os.environ.get(FOLDER) or beside) / "worked_examples.json"
    if not path.is_file():
        pytest.skip(f"no worked examples: set {FOLDER} to the folder of worked_examples.json")
    return {record["id"]: record for record in json.loads(path.read_text(encoding="utf-8"))}
