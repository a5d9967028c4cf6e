"""What every file must hold to: short enough to read, and true on any machine."""

import ast
import re
import shutil
from pathlib import Path

import pytest

from tests import processes
from tests.architecture.source import ROOT, sources

MAX_LINES = 450
# One machine's folders; spelled so that this file does not match itself.
MACHINE_PATH = re.compile(r"(?<![\w.~-])/(?:work|root|farm|opt|home|Users|tmp/(?:venv|w))(?:/|\b)")


def _tracked() -> list[Path]:
    git = shutil.which("git")
    if git is None:
        pytest.skip("git is not installed")
    listing = processes.run(
        [git, "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode:
        pytest.skip(f"not a git checkout: {listing.stderr.strip()}")
    return [ROOT / name for name in listing.stdout.split("\0") if name]


def test_files_are_short_enough_to_read():
    lengths = {source.at(1): len(source.path.read_text(encoding="utf-8").splitlines()) for source in sources()}
    long = {name: length for name, length in lengths.items() if length > MAX_LINES}
    assert not long, f"over {MAX_LINES} lines, split by concept: {long}"


def test_no_file_names_a_path_of_one_machine():
    wrong: list[str] = []
    for path in _tracked():
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
            continue
        wrong += [
            f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
            for number, line in enumerate(lines, start=1)
            if MACHINE_PATH.search(line)
        ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("folder", ["work/main", "root/.cache", "opt/pypi", "tmp/venv/bin"])
def test_machine_path_pattern(folder: str):
    assert MACHINE_PATH.search(f"cd /{folder}")
    assert not MACHINE_PATH.search(f"see ../{folder} or https://example.org/{folder}")


STARTS = {"subprocess.run", "subprocess.Popen", "subprocess.call", "subprocess.check_call", "subprocess.check_output"}
STARTS |= {"os.fork", "os.forkpty", "os.posix_spawn", "os.popen", "multiprocessing.Process", "multiprocessing.Pool"}


def test_tests_start_processes_with_a_limit():
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {name}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if path.name != "processes.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and (name := ast.unparse(node.func)) in STARTS
    ]
    assert not wrong, f"start it with tests.processes, which limits how long it may take: {wrong}"
