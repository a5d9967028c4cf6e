"""A mistake on the line of any benchmark is one line."""

import sys

import pytest

from benchmarks.entry import run_command
from clearhead.errors import UserError
from tests import processes
from tests.architecture.source import ROOT


def test_every_benchmark_begins_alike() -> None:
    programs = [p for p in (ROOT / "benchmarks").glob("*.py") if '__name__ == "__main__"' in p.read_text("utf-8")]
    assert len(programs) > 25
    for program in programs:
        text = program.read_text("utf-8")
        begin = text[text.index('if __name__ == "__main__":') :]
        assert "run_command(" in (text if begin.endswith("    main()\n") else begin), program.name


def test_a_mistake_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def wrong(what: str) -> None:
        raise UserError(f"{what}: expected another")

    with pytest.raises(SystemExit) as end:
        run_command(wrong, "folder")
    assert end.value.code == 2
    assert capsys.readouterr().err == "error: folder: expected another\n"


def test_on_the_line() -> None:
    line = [sys.executable, "-m", "benchmarks.course_pages", "nothing"]
    done = processes.run(line, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
