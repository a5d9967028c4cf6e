"""The page's own tests and its type check, run by node as part of the one test command."""

import os
from pathlib import Path
from typing import NoReturn

import pytest

import hatch_build
from tests import processes

ROOT = Path(hatch_build.__file__).resolve().parent
UI = ROOT / "ui"


def _missing(what: str) -> NoReturn:
    message = f"tests of the page need {what}"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture(scope="module")
def node() -> str:
    found = hatch_build.find_node()
    if found is None:
        _missing(f"node 20.19 or 22.12 and up (pip install {hatch_build.NODE_PACKAGE})")
    if not hatch_build.is_installed(UI):
        _missing("what ui/package-lock.json names (npm ci --ignore-scripts, in ui/)")
    return found.node


def _run(command: list[str], cwd: Path, **environment: str) -> str:
    """What a command says; fails with it where the command does."""
    done = processes.run(
        command,
        cwd=cwd,
        env={**os.environ, "NO_COLOR": "1", **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, f"{' '.join(command)}\n{said}"
    return said


@pytest.mark.parametrize("many", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["some", "many"])
def test_units(node: str, tmp_path, many: bool):
    """vitest; what the engine in the page must agree with is computed here, by the network itself."""
    from tests.explorer import engine_fixtures  # It makes models when it is imported.

    engine_fixtures.write(tmp_path, n_random=engine_fixtures.MANY if many else engine_fixtures.RANDOM)
    said = _run([node, "node_modules/vitest/vitest.mjs", "run"], UI, CLEARHEAD_FIXTURES=str(tmp_path))
    assert "skipped" not in said, said


def test_types(node: str):
    _run([node, "node_modules/svelte-check/bin/svelte-check", "--fail-on-warnings"], UI)
