"""The linter, the formatter and the type checker, so that one command runs every check."""

import re
import sys
import sysconfig
from pathlib import Path

import pytest

from tests import processes
from tests.architecture.source import ROOT

SCRIPTS = Path(sysconfig.get_path("scripts"))
CHECKS = {
    "lint": ["ruff", "check", "--no-cache", "--output-format", "concise", "."],
    "format": ["ruff", "format", "--no-cache", "--check", "."],
    "types": ["pyrefly", "check", "--output-format", "min-text", "--python-interpreter-path", sys.executable],
}


@pytest.mark.parametrize("name", CHECKS)
def test_check(name: str):
    tool, *arguments = CHECKS[name]
    done = processes.run(
        [SCRIPTS / tool, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, f"{tool} {' '.join(arguments)}\n{done.stdout}{done.stderr}"


def test_readme_marks_both_commands():
    readme = ROOT / "README.md"
    if not readme.exists():
        pytest.skip("no README yet")
    for marker in ("demo-command", "test-command"):
        fenced = re.findall(rf"<!-- {marker} -->\n+```[a-z]*\n(.+)\n```", readme.read_text(encoding="utf-8"))
        assert len(fenced) == 1, f"README.md: one line in a code fence after <!-- {marker} -->"
